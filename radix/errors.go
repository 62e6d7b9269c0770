package radix

type constError string

func (e constError) Error() string { return string(e) }

// Conditions that this package's functions report, to be tested with errors.Is.
const (
	// ErrIndex is returned by methods of a nil or zero [Index].
	ErrIndex = constError("radix: index was not made with New")
	// ErrUnknownWorker is returned when a [WorkerID] was never handed out by
	// this index, or its worker was removed.
	ErrUnknownWorker = constError("radix: unknown worker")
	// ErrHolder is returned when a [Holder] names a medium that this index did
	// not register, or a group outside NoGroup..MaxGroup.
	ErrHolder = constError("radix: invalid holder")
	// ErrTooManyWorkers is returned by AddWorker when [MaxWorkers] are registered.
	ErrTooManyWorkers = constError("radix: too many workers")
	// ErrProfile is wrapped by every error of [NewProfile].
	ErrProfile = constError("radix: invalid profile")
	// ErrOptions is wrapped by every error of [New] and [NewContentMap] about
	// their options, and by those about a nil argument of other functions.
	ErrOptions = constError("radix: invalid options")
	// ErrContent is wrapped by the errors of a [ContentMap] about content keys.
	ErrContent = constError("radix: invalid content keys")
)
