package chat

// Expressions. Their names are those of jinja2/nodes.py.
type expr interface{ at() int }

type pos int

func (p pos) at() int { return int(p) }

type (
	constExpr struct {
		pos
		val Value
	}
	// nameExpr has its place filled in by the resolver: slot of the
	// activation that is up functions outward.
	nameExpr struct {
		pos
		name     string
		ctx      nameCtx
		up, slot int
	}
	nsRef struct {
		pos
		name nameExpr
		attr string
	}
	tupleExpr struct {
		pos
		items []expr
	}
	listExpr struct {
		pos
		items []expr
	}
	dictExpr struct {
		pos
		keys, vals []expr
	}
	condExpr struct {
		pos
		test, then, other expr
	}
	boolExpr struct { // and, or
		pos
		and         bool
		left, right expr
	}
	notExpr struct {
		pos
		arg expr
	}
	compareExpr struct {
		pos
		left expr
		ops  []string
		args []expr
	}
	mathExpr struct {
		pos
		op          string
		left, right expr
	}
	unaryExpr struct {
		pos
		neg bool
		arg expr
	}
	concatExpr struct {
		pos
		args []expr
	}
	getattrExpr struct {
		pos
		obj  expr
		attr string
	}
	getitemExpr struct {
		pos
		obj, key expr
	}
	sliceExpr struct {
		pos
		obj              expr
		start, end, step expr // nil when left out
	}
	callExpr struct {
		pos
		fn     expr
		args   []expr
		kwargs []keyword
	}
	filterExpr struct {
		pos
		obj    expr // nil in a filter block
		name   string
		fn     filterFunc
		args   []expr
		kwargs []keyword
	}
	testExpr struct {
		pos
		obj    expr
		name   string
		fn     testFunc
		args   []expr
		kwargs []keyword
	}
	keyword struct {
		name string
		val  expr
	}
)

type nameCtx uint8

const (
	ctxLoad nameCtx = iota
	ctxStore
	ctxParam
)

// Statements.
type stmt interface{ at() int }

type (
	dataStmt struct {
		pos
		text string
	}
	outputStmt struct {
		pos
		val expr
	}
	ifStmt struct {
		pos
		test  expr
		body  []stmt
		elifs []*ifStmt
		other []stmt
	}
	forStmt struct {
		pos
		target   expr
		iter     expr
		test     expr
		body     []stmt
		other    []stmt
		enter    []load // of each round
		leave    []int
		loopSlot int // -1 when the body has no use for it
		// The filter is a function of its own, as in Jinja.
		testEnter []load
		testSlots int
		testTgt   expr
		elseEnter []load
		elseLeave []int
	}
	setStmt struct {
		pos
		target expr
		val    expr
	}
	setBlock struct {
		pos
		target expr
		filter expr
		body   []stmt
		enter  []load
		leave  []int
	}
	withStmt struct {
		pos
		targets, vals []expr
		body          []stmt
		enter         []load
		leave         []int
	}
	filterBlock struct {
		pos
		filter expr
		body   []stmt
		enter  []load
		leave  []int
	}
	macroStmt struct {
		pos
		name   *nameExpr
		params *macroDef
	}
	callBlock struct {
		pos
		call   *callExpr // nil for generation
		params *macroDef
	}
	loopControl struct {
		pos
		brk bool
	}
)

// macroDef is a macro, the body of a call block or of a generation block.
type macroDef struct {
	name     string
	args     []*nameExpr
	defaults []expr // of the last arguments
	body     []stmt
	caller   int // slot, -1 when the body does not name it
	slots    int
	enter    []load
}

// load says how a name of a frame begins: jinja2/idtracking.py's
// VAR_LOAD_*.
type load struct {
	slot     int
	kind     loadKind
	name     string // of resolve
	up, from int    // of alias
}

type loadKind uint8

const (
	loadParam loadKind = iota
	loadResolve
	loadAlias
	loadUndefined
)
