package top

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cellmq/cellmq/broker"
)

// Screen draws views. The zero value draws nothing.
type Screen struct {
	Width, Height int  // Height 0: as many lines as there are
	Colour        bool // with escape sequences for colours
	ASCII         bool // without block characters and other letters than those of ASCII

	Order  Order
	Filter string
	Typing bool // the filter is being typed
	Paused bool
	Help   bool
	All    bool // also the cells of models that run nothing
	Scroll int  // lines of the body above the screen
}

// style is how a part of a line looks.
type style int

const (
	plain style = iota
	bold
	dim
	good
	warn
	bad
	accent
	inverse
)

// sgr are the parameters of the escape sequence of a style.
func (s style) sgr() string {
	return [...]string{"", "1", "2", "32", "33", "31;1", "36", "7"}[s]
}

// part is a piece of a line.
type part struct {
	text  string
	style style
}

// line is a line before it is fitted to the screen.
type line []part

func (l line) with(s style, text string) line { return append(l, part{text, s}) }

// text returns a line as the terminal gets it: cut to the width, and nothing in it but
// what is drawn.
func (s *Screen) text(l line) string {
	var b strings.Builder
	left := s.Width
	for _, p := range l {
		text := []rune(s.clean(p.text))
		text = text[:min(len(text), left)]
		left -= len(text)
		if sgr := p.style.sgr(); s.Colour && sgr != "" && len(text) > 0 {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", sgr, string(text))
		} else {
			b.WriteString(string(text))
		}
	}
	if s.Colour {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

func (s *Screen) clean(text string) string {
	text = clean(text)
	if !s.ASCII {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, text)
}

// Draw returns the lines of a view, at most as many as the screen has. It sorts and
// filters the view.
func (s *Screen) Draw(v *View) []string {
	v.Arrange(s.Order, s.Filter)
	head, body, foot := s.head(v), s.body(v), s.foot()
	if s.Help {
		body = s.help()
	}
	if s.Height > 0 {
		room := max(s.Height-len(head)-len(foot), 0)
		s.Scroll = min(max(s.Scroll, 0), max(len(body)-room, 0))
		hidden := len(body) - s.Scroll - room
		body = body[s.Scroll:][:min(room, len(body)-s.Scroll)]
		if hidden > 0 && room > 0 {
			body[room-1] = line{{fmt.Sprintf("  %d more lines (arrows)", hidden+1), dim}}
		}
		for len(body) < room {
			body = append(body, nil)
		}
	}
	var out []string
	for _, l := range append(append(head, body...), foot...) {
		out = append(out, s.text(l))
	}
	if s.Height > 0 {
		out = out[:min(len(out), s.Height)]
	}
	return out
}

// head is the fleet in three lines.
func (s *Screen) head(v *View) []line {
	title := line{{"cellmq top", bold}, {fmt.Sprintf("  %d %s", len(v.Workers), plural(len(v.Workers), "worker")), plain}}
	if s.Filter != "" {
		title = title.with(accent, "  filter "+s.Filter)
	}
	if s.Paused {
		title = title.with(warn, "  paused")
	}
	title = title.with(dim, "  "+v.Time.Format("15:04:05"))
	rates := s.pair(nil, "requests ", number(v.Requests)+"/s", bold)
	if v.Failures > 0 {
		rates = s.pair(rates, "", " ("+number(v.Failures)+" not ok)", bad)
	}
	rates = s.pair(rates, "  tokens ", number(v.Tokens)+"/s", bold)
	rates = s.pair(rates, "  running ", fmt.Sprintf("%d/%d", v.Running, v.Slots), plain)
	rates = s.pair(rates, "  queued ", number(float64(v.Queued)), queueStyle(v.Queued))
	rates = s.pair(rates, "  steps ", number(v.Steps)+"/s", plain)
	if v.Letters > 0 {
		rates = s.pair(rates, "  dead letters ", number(float64(v.Letters)), warn)
	}
	out := []line{title, rates}
	if s.Height == 0 || s.Height >= 8 {
		out = append(out, s.latencies(&v.Latency))
	}
	if v.Unshown > 0 {
		more := strconv.Itoa(v.Unshown)
		if v.Unshown >= maxUnshown {
			more += " or more"
		}
		out = append(out, line{{more + " others announced themselves and have no room; names may be made up", bad}})
	}
	if v.Refused > 0 {
		out = append(out, line{{fmt.Sprintf("%d messages refused: %v", v.Refused, v.LastRefusal), bad}})
	}
	return out
}

// pair adds a figure with its name to a line, if there is room.
func (s *Screen) pair(l line, name, value string, look style) line {
	n := len([]rune(name)) + len([]rune(value))
	for _, p := range l {
		n += len([]rune(p.text))
	}
	if n > s.Width {
		return l
	}
	return append(l, part{name, dim}, part{value, look})
}

// latencies is how long requests took in the last ten seconds.
func (s *Screen) latencies(l *broker.LiveLatency) line {
	out := s.pair(nil, "p50/p99  total ", quantiles(l.Total), plain)
	out = s.pair(out, "  first token ", quantiles(l.FirstToken), plain)
	out = s.pair(out, "  token ", quantiles(l.InterToken), plain)
	out = s.pair(out, "  broker ", quantiles(l.Broker), plain)
	return s.pair(out, "  admit ", quantiles(l.Queue), plain)
}

func quantiles(h broker.LiveHistogram) string {
	return took(h.Quantile(0.5)) + "/" + took(h.Quantile(0.99))
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func queueStyle(n uint64) style {
	if n > 0 {
		return warn
	}
	return plain
}

// foot is the keys, or the filter that is being typed.
func (s *Screen) foot() []line {
	switch {
	case s.Height == 0:
		return nil
	case s.Typing:
		return []line{{{"filter: ", accent}, {s.Filter, bold}, {" ", inverse}, {"  Enter keeps it, Esc drops it", dim}}}
	}
	return []line{{{" q", bold}, {" quit", dim}, {"  s", bold}, {" sort: " + s.Order.String(), dim}, {"  /", bold}, {" filter", dim}, {"  p", bold}, {" pause", dim}, {"  a", bold}, {" all cells", dim}, {"  ?", bold}, {" help", dim}}}
}

func (s *Screen) help() []line {
	var out []line
	for _, text := range []string{
		"", "q, Ctrl-C     quit", "s, S          sort by name, running, queued, tokens, p99; S backwards", "/             show names that have a text; Esc shows all",
		"p, space      pause", "a             show the cells of idle models too", "arrows, j, k  scroll; PgUp, PgDn, Home, End", "Ctrl-Z        suspend; fg comes back", "?, h          this", "",
		"rows          how full the steps of a cell are: the mean against its largest batch", "last steps    the rows of its last steps, the newest at the right",
		"ready         nodes that wait for a step", "queued        requests in JetStream that no worker has taken: high/std/low", "p50, p99      of requests that ended within ten seconds",
	} {
		out = append(out, line{{"  " + text, plain}})
	}
	return out
}

// body is the workers, and the models with their cells.
func (s *Screen) body(v *View) []line {
	if len(v.Workers) == 0 {
		text := "no worker answers"
		if s.Filter != "" {
			text = "nothing has " + s.Filter + " in its name"
		}
		return []line{nil, {{"  " + text, dim}}}
	}
	out := s.workers(v)
	out = append(out, nil)
	return append(out, s.models(v)...)
}

// workers is a line for each worker.
func (s *Screen) workers(v *View) []line {
	name := min(max(s.Width/4, 12), 40)
	head := fit("WORKER", name) + " " + fit("STATE", 8) + right("RUN", 8)
	wide, wider := s.Width >= 72, s.Width >= 110
	if wide {
		head += right("REQ/S", 7) + right("TOK/S", 7) + right("MEM", 6) + "  EXECUTORS"
	}
	if wider {
		head += " (busy, last cell)"
	}
	out := []line{{{fit(head, s.Width), inverse}}}
	for i := range v.Workers {
		w := &v.Workers[i]
		l := line{{fit(clean(w.Name), name) + " ", bold}, {fit(clean(w.State), 8), stateStyle(w.State)}, {right(fmt.Sprintf("%d/%d", w.Running, w.Slots), 8), plain}}
		if wide {
			l = l.with(plain, right(number(w.Requests), 7)+right(number(w.Tokens), 7)+right(memory(w.Bytes), 6)+"  ")
			l = append(l, s.executors(w, s.Width-name-40)...)
		}
		out = append(out, l)
		if w.Reason != "" {
			out = append(out, line{{"  " + w.Reason, bad}})
		}
		if wider {
			facts := "  " + strings.TrimSpace(w.Version+" "+w.ISA) + ", up " + lasted(w.Uptime)
			out = append(out, line{{facts, dim}})
		}
	}
	return out
}

func stateStyle(state string) style {
	switch state {
	case broker.LiveServing:
		return good
	case broker.LiveDraining, broker.LiveStopped:
		return warn
	default:
		return bad
	}
}

// executors shows how busy each executor is; the cell of its last step if there is
// room, and all of them as one if there is none.
func (s *Screen) executors(w *WorkerView, width int) (out line) {
	const short, long = 14, 44
	var sum float64
	running := 0
	for _, e := range w.Executors {
		if e.Threads > 0 {
			sum += e.Busy
			running++
		}
	}
	if running*short > width {
		if running == 0 {
			return nil
		}
		return line{{bar(sum/float64(running), 6, s.ASCII), accent}, {fmt.Sprintf(" %3.0f%% of %d", 100*sum/float64(running), running), plain}}
	}
	for _, e := range w.Executors {
		if e.Threads == 0 {
			continue
		}
		out = append(out, part{bar(e.Busy, 6, s.ASCII), accent}, part{fmt.Sprintf(" %3.0f%%  ", 100*e.Busy), plain})
		if running*long <= width {
			out = append(out, part{fit(clean(e.Cell), long-short-2), dim}, part{"  ", plain})
		}
	}
	return out
}

// models is a line for each model and each of its cells.
func (s *Screen) models(v *View) []line {
	name := min(max(s.Width/4, 14), 40)
	barWidth := min(max((s.Width-name-4)/4, 8), 48)
	recent := 0
	if s.Width >= 72 {
		recent = min(s.Width-name-barWidth-32, broker.LiveSteps)
	}
	head := fit("MODEL, CELL", name) + " " + fit("ROWS IN A STEP", barWidth) + right("MEAN", 6) + "/" + fit("MAX", 4)
	if recent > 0 {
		head += " " + fit("LAST STEPS", recent) + right("STEPS/S", 9) + right("READY", 7)
	}
	out := []line{{{fit(head, s.Width), inverse}}}
	for i := range v.Models {
		m := &v.Models[i]
		out = append(out, s.model(m, name))
		if !s.All && m.idle() {
			continue
		}
		for j := range m.Cells {
			c := &m.Cells[j]
			share := 0.0
			if c.MaxRows > 0 {
				share = c.Rows / float64(c.MaxRows)
			}
			l := line{{fit("  "+clean(c.Name), name) + " ", plain}, {bar(share, barWidth, s.ASCII), fillStyle(share)}, {right(number(c.Rows), 6) + "/" + fit(number(float64(c.MaxRows)), 4), plain}}
			if recent > 0 {
				l = append(l, part{" " + spark(c.Recent, c.MaxRows, recent, s.ASCII), accent}, part{right(number(c.Steps), 9), plain}, part{right(number(float64(c.Ready)), 7), queueStyle(uint64(max(c.Ready-c.MaxRows, 0)))})
			}
			out = append(out, l)
		}
	}
	return out
}

// model is the line of a model, without its cells.
func (s *Screen) model(m *ModelView, name int) line {
	l := s.pair(line{{fit(clean(m.Name), name) + " ", bold}}, "run ", number(float64(m.Running)), plain)
	if q := m.Queued; q != nil {
		l = s.pair(l, "  queued ", fmt.Sprintf("%s/%s/%s", number(float64(q.High)), number(float64(q.Std)), number(float64(q.Low))), queueStyle(q.High+q.Std+q.Low))
	}
	l = s.pair(l, "  req/s ", number(m.Requests), plain)
	if m.Failures > 0 {
		l = s.pair(l, "", " ("+number(m.Failures)+" not ok)", bad)
	}
	l = s.pair(l, "  tok/s ", number(m.Tokens), plain)
	l = s.pair(l, "  total ", quantiles(m.Latency.Total), plain)
	l = s.pair(l, "  first ", quantiles(m.Latency.FirstToken), plain)
	l = s.pair(l, "  token ", quantiles(m.Latency.InterToken), plain)
	return s.pair(l, "  ", strings.Join(m.Versions, ", "), dim)
}

func fillStyle(share float64) style {
	if share > 0.5 {
		return good
	}
	return accent
}
