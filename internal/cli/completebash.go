package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// bashWords stands in for the package bash-completion, which a shell may lack: bash
// itself takes a word apart at = and :. It makes one word of what follows such a
// sign without a space, up to where the cursor is, and leaves newer bash and 3.2 alike
// with the same variables as the package does.
const bashWords = `
# Words without the package bash-completion, for which bash takes --flag=value apart.
__cellmq_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i word joins=
    words=()
    cword=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $cword -ge 0 && -n $word && ( -n $joins || $word =~ ^[=:]+$ ) ]]; then
            words[cword]+=$word
        else
            cword=$((cword + 1))
            words[cword]=$word
        fi
        joins=
        if [[ $word =~ ^[=:]+$ ]]; then
            joins=yes
        fi
    done
    cur=${words[cword]}
    prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
}
`

// bashCompletion writes the script for bash.
func bashCompletion(root *cobra.Command, out io.Writer) error {
	if err := root.GenBashCompletionV2(out, true); err != nil {
		return err
	}
	_, err := io.WriteString(out, bashWords)
	return err
}
