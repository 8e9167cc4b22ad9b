//go:build !race

package registry_test

const raced = false
