// Package modeldir is the one rule for what a model's directory may hold, and the
// digest of it. Whoever loads a model, keeps its files or reads a record of them
// asks here, so that what one accepts, the others do.
//
//	os directory --Open--> *Dir (an fs.FS) --List--> files, checked --> Digest
//
// # The rule
//
// A model has 1 to [MaxFiles] regular files, of at most [MaxFileBytes] each and
// [MaxBytes] together. Their names are [ValidName]s. Names that begin with a dot
// and sub-directories are none of the model's: editors and tools leave them, and
// they are not looked at. Anything else, such as a device or a named pipe, is an
// [*Error] and not left out in silence.
//
// # Links
//
// A directory may come from a stranger, and be stored where others read it. So a
// symbolic link of a [Dir] is followed only within the directory; one that leads
// outside is an error, however it gets there.
package modeldir
