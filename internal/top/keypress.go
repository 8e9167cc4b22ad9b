package top

import "time"

// key obeys a key.
func (l *loop) key(k key) (quit bool, err error) {
	s := &l.screen
	switch {
	case k == keySuspend:
		return false, l.suspend()
	case s.Typing:
		return false, l.typing(k)
	}
	page := max(s.Height-6, 1)
	switch k {
	case 'q', 'Q':
		return true, nil
	case keyInterrupt:
		return true, ErrInterrupted
	case 's':
		s.Order = (s.Order + 1) % orders
	case 'S':
		s.Order = (s.Order + orders - 1) % orders
	case 'p', ' ':
		s.Paused = !s.Paused
		l.frozen = nil
		if s.Paused {
			l.frozen = l.fleet.View(time.Now())
		}
	case 'a':
		s.All = !s.All
	case '/':
		s.Typing = true
	case '?', 'h':
		s.Help = !s.Help
	case keyEscape:
		s.Filter, s.Help = "", false
	case keyUp, 'k':
		s.Scroll--
	case keyDown, 'j':
		s.Scroll++
	case keyPageUp:
		s.Scroll -= page
	case keyPageDown:
		s.Scroll += page
	case keyHome, 'g':
		s.Scroll = 0
	case keyEnd, 'G':
		s.Scroll = 1 << 20 // drawing keeps it within the lines
	}
	return false, nil
}

// longestFilter bounds a filter.
const longestFilter = 64

// typing takes a key of the filter.
func (l *loop) typing(k key) error {
	s := &l.screen
	switch {
	case k == keyInterrupt:
		return ErrInterrupted
	case k == keyEnter:
		s.Typing = false
	case k == keyEscape:
		s.Typing, s.Filter = false, ""
	case k == keyBackspace:
		s.Filter = s.Filter[:max(len(s.Filter)-1, 0)]
	case k > ' ' && k <= '~' && len(s.Filter) < longestFilter:
		s.Filter += string(rune(k))
	}
	return nil
}
