package models

import "fmt"

// Code is the error code that a client sees for a refused input.
type Code string

// The codes an [InputError] can have.
const (
	// BadRequest: the input or a parameter is malformed or out of its range.
	BadRequest Code = "bad_request"
	// UnsupportedParameter: the model's family cannot do what a parameter asks.
	UnsupportedParameter Code = "unsupported_parameter"
	// InputTooLong: the input has more tokens than the model accepts.
	InputTooLong Code = "input_too_long"
)

// InputError says what is wrong with a request's input or parameters. The
// model is unaffected.
type InputError struct {
	Code Code
	// Field is the payload key at fault, for example "max_tokens".
	Field string
	// Message says what is wrong, with the bound that was passed. It does not
	// repeat the field.
	Message string
}

// Error returns the field and the message.
func (e *InputError) Error() string { return e.Field + ": " + e.Message }

func inputErrorf(code Code, field, format string, args ...any) *InputError {
	return &InputError{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// ConfigError says which field of a model's files is wrong.
type ConfigError struct {
	// File is the file's name in the model's directory.
	File string
	// Field is the configuration key; empty when the file as a whole is wrong.
	Field string
	// Err is what is wrong.
	Err error
}

// Error names the file, the field and what is wrong.
func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Err.Error()
	}
	return e.File + ": " + e.Field + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *ConfigError) Unwrap() error { return e.Err }
