package kvevents

// Form is how an engine release writes events.
type Form struct{}

// FormFor returns the form of an engine release.
func FormFor(engine, version string) (Form, error) { return Form{}, nil }

// AppendBatch appends the payload of b in the form f to dst.
func AppendBatch(dst []byte, b *Batch, f Form) []byte { return dst }
