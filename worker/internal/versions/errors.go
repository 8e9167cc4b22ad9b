package versions

import (
	"errors"
	"fmt"
)

var (
	// ErrBudget is returned for a version that does not fit into the budget,
	// however long one waits. It comes as a [*BudgetError].
	ErrBudget = errors.New("model does not fit into the memory budget")

	// ErrThird is returned for a version that is not loaded because two others of
	// its model are wanted.
	ErrThird = errors.New("two other versions of the model are served")

	// ErrUnknown says that there is no such version. A [Loader] wraps it.
	ErrUnknown = errors.New("unknown version")

	// ErrRefused says that the files of a version are not what they should be, and
	// that fetching them again would not help. A [Loader] wraps it.
	ErrRefused = errors.New("version refused")

	// ErrStopped says that [Set.Run] has ended, and that nothing is loaded any more.
	ErrStopped = errors.New("no versions are loaded any more")
)

// BudgetError says how much a version would need. It is an [ErrBudget].
type BudgetError struct {
	// Need is the most the version takes, with what can not be unloaded for it,
	// in bytes.
	Need int64

	// Budget is what there is, in bytes.
	Budget int64
}

// Error names both figures.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("%v: needs up to %d bytes of %d", ErrBudget, e.Need, e.Budget)
}

// Unwrap returns [ErrBudget].
func (e *BudgetError) Unwrap() error { return ErrBudget }
