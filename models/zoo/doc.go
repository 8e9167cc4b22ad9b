// Package zoo holds the models that every binary carries.
package zoo
