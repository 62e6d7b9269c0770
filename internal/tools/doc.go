// Package tools holds the checks of the repository itself that need more than
// the standard library, or look at the module from outside: what importers
// download, which dependencies they get, whether the copied data are still
// the originals. It has no code to import.
package tools
