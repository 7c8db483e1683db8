package closures

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// maxReason bounds what an owner may write into every slot ad, in runes.
const maxReason = 300

// maxOwners bounds the owners that close one GPU, and with them metrics.
const maxOwners = 16

var ownerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)

// check rejects an owner or a reason that only the agent may give, and returns
// the reason as one line.
func check(owner, reason string) (string, error) {
	if err := checkOwner(owner); err != nil {
		return "", err
	}
	words := strings.FieldsFunc(reason, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	})
	reason = strings.Join(words, " ")
	switch {
	case reason == "":
		return "", errors.New("a closed GPU needs a reason, for those who wonder later: --reason TEXT")
	case len([]rune(reason)) > maxReason:
		return "", fmt.Errorf("the reason has more than %d characters: say it shorter", maxReason)
	}
	return reason, nil
}

func checkOwner(owner string) error {
	switch {
	case owner == OwnerAgent || owner == OwnerNode:
		return fmt.Errorf("the owner %q is gpuslot's own: use another name, such as that of the program which closes", owner)
	case !ownerName.MatchString(owner):
		return fmt.Errorf("the owner %q is no name: up to 32 small letters, digits, dots, dashes and underscores, "+
			"such as node-health", foreign.Clip(owner))
	}
	return nil
}
