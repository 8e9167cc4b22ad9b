// Package repotest holds the tests of the repository as a whole: rules that no
// compiler and no linter checks.
//
//   - A test that sleeps does so inside a testing/synctest bubble.
//   - Every package has a comment that says what it is for.
//   - The files of the project speak of the project, not of the machine it was
//     written on.
//   - Links between documents lead somewhere, and the index of decision records
//     is complete.
//   - The Dockerfiles and compose files name files, settings and versions that
//     exist.
//
// It has no code of its own.
package repotest
