package broker

import (
	"fmt"
	"strings"
)

// The bounds of the names that subjects consist of.
const (
	maxModelName  = 64
	maxClientName = 64
	minIDLength   = 8
	maxIDLength   = 32
)

// ValidModel reports whether s is a model name: [a-z0-9-]{1,64}.
func ValidModel(s string) bool {
	return within(s, 1, maxModelName, func(b byte) bool {
		return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-'
	})
}

// ValidClient reports whether s is a client name: [A-Za-z0-9_-]{1,64}.
func ValidClient(s string) bool {
	return within(s, 1, maxClientName, func(b byte) bool { return alphanumeric(b) || b == '_' || b == '-' })
}

// ValidID reports whether s is a request id: [A-Za-z0-9]{8,32}.
func ValidID(s string) bool { return within(s, minIDLength, maxIDLength, alphanumeric) }

func alphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

func within(s string, shortest, longest int, allowed func(byte) bool) bool {
	if len(s) < shortest || len(s) > longest {
		return false
	}
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return true
}

// subjects builds and reads the subjects below one prefix.
type subjects string

// newSubjects checks the prefix: one or more tokens of [A-Za-z0-9_-].
func newSubjects(prefix string) (subjects, error) {
	for token := range strings.SplitSeq(prefix, ".") {
		if !ValidClient(token) {
			return "", fmt.Errorf("subject prefix %q: token %q is not [A-Za-z0-9_-]{1,%d}", prefix, token, maxClientName)
		}
	}
	return subjects(prefix), nil
}

func (s subjects) request(model string, p Priority, client string) string {
	return string(s) + ".req." + model + "." + string(p) + "." + client
}

// requestsOf are the subjects of a model that consumers read.
func (s subjects) requestsOf(model string) []string {
	return []string{s.queue(model, High), s.queue(model, Std), s.queue(model, Low)}
}

// coarseModel returns the model of a pattern that takes everything below a
// model, also what no consumer reads.
func (s subjects) coarseModel(pattern string) (model string, ok bool) {
	model, ok = strings.CutPrefix(pattern, string(s)+".req.")
	if !ok {
		return "", false
	}
	model, ok = strings.CutSuffix(model, ".>")
	return model, ok && ValidModel(model)
}

func (s subjects) queue(model string, p Priority) string {
	return string(s) + ".req." + model + "." + string(p) + ".*"
}

func (s subjects) realtime(model string) string { return string(s) + ".rt." + model }

// realtimeOf is realtime for a client that names itself, which permissions on
// subjects can hold it to.
func (s subjects) realtimeOf(model, client string) string { return s.realtime(model) + "." + client }

// realtimeClient takes the client out of a subject of realtimeOf; ok is false
// for one of realtime.
func (s subjects) realtimeClient(model, subject string) (client string, ok bool) {
	return strings.CutPrefix(subject, s.realtimeOf(model, ""))
}

func (s subjects) out(client, id string) string { return string(s) + ".out." + client + "." + id }

// outResume is where the frames of mode resume go: a stream keeps them.
func (s subjects) outResume(client, id string) string {
	return string(s) + ".outr." + client + "." + id
}

func (s subjects) resume(client string) string { return string(s) + ".resume." + client }

func (s subjects) control(worker string) string { return string(s) + ".ctl." + worker }

// live is where a worker shows itself, and watch where it is asked to.
func (s subjects) live(worker string) string { return string(s) + ".live." + worker }

func (s subjects) watch() string { return string(s) + ".watch" }

func (s subjects) cancel(client string) string { return string(s) + ".cancel." + client }

// parseRequest takes model, priority and client out of a request subject.
func (s subjects) parseRequest(subject string) (model string, p Priority, client string, err error) {
	rest, ok := strings.CutPrefix(subject, string(s)+".req.")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return "", "", "", fmt.Errorf("subject %q is not %s.req.<model>.<priority>.<client>", subject, string(s))
	}
	model, p, client = parts[0], Priority(parts[1]), parts[2]
	switch {
	case !ValidModel(model):
		err = fmt.Errorf("model %q is not [a-z0-9-]{1,%d}", model, maxModelName)
	case !p.valid():
		err = fmt.Errorf("priority %q is not high, std or low", string(p))
	case !ValidClient(client):
		err = fmt.Errorf("client %q is not [A-Za-z0-9_-]{1,%d}", clip(client), maxClientName)
	}
	return model, p, client, err
}

// outClient takes the client out of a reply subject of ours; ok is false for
// any other subject.
func (s subjects) outClient(subject string) (client string, ok bool) {
	rest, ok := strings.CutPrefix(subject, string(s)+".out.")
	if !ok {
		return "", false
	}
	client, id, ok := strings.Cut(rest, ".")
	return client, ok && ValidClient(client) && ValidID(id)
}

// inbox starts the inboxes that libraries make unless they are told otherwise.
const inbox = "_INBOX."

// isInbox reports whether reply is an inbox of that kind.
func isInbox(reply string) bool {
	return len(reply) > len(inbox) && strings.HasPrefix(reply, inbox) && publishable(reply)
}

// owns reports whether reply is one that only this client hears: below
// infer.out.<client>.
func (s subjects) owns(client, reply string) bool {
	own := s.out(client, "")
	return ValidClient(client) && len(reply) > len(own) && strings.HasPrefix(reply, own) && publishable(reply)
}

// replyAllowed reports whether what anybody asked for may go to reply. The
// worker's permissions are wider than the client's, so a reply into the
// server's own subjects or into ours, other than a token stream, is refused.
// Where users have permissions only an inbox is left: anything else may be
// somebody's.
func (s subjects) replyAllowed(reply string, authorized bool) bool {
	if authorized {
		return isInbox(reply)
	}
	if strings.HasPrefix(reply, string(s)+".") {
		_, ok := s.outClient(reply)
		return ok
	}
	return !strings.HasPrefix(reply, "$") && publishable(reply)
}

// publishable reports whether s is a subject without wildcards, empty tokens
// or white space.
func publishable(s string) bool {
	const longest = 512
	if s == "" || len(s) > longest || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == '*' || s[i] == '>' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func (p Priority) valid() bool { return p == High || p == Std || p == Low }
