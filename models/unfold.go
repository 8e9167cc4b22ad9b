package models

// The payload keys that errors name.
const (
	fieldInput     = "input"
	fieldMaxTokens = "max_tokens"
	fieldRamps     = "ramps"
)

// Unfold tokenizes and checks an input and its parameters and unfolds them
// into a graph. Whatever is wrong with them is an [*InputError].
func (m *Model) Unfold(in Input, p Params) (*Request, error) {
	if in.IDs != nil && in.Text != "" {
		return nil, inputErrorf(BadRequest, fieldInput, "both text and ids")
	}
	r, err := m.family.unfold(in, p)
	if err != nil {
		return nil, err
	}
	r.Model = m
	return r, nil
}
