"""`greenfast completion`: scripts with which shells complete commands, options, names and ids."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from greenfast.search.errors import UsageError

BASH = r"""# greenfast: completion for bash. Load it with: source <(greenfast completion bash)
_greenfast() {
    local line="${COMP_LINE:0:COMP_POINT}" current before reply
    local -a words
    read -r -a words <<<"$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[-1]}"
    before="${current%"${current##*[:=]}"}"  # bash replaces what follows a colon or equals sign
    COMPREPLY=()
    while IFS=$'\t' read -r reply _; do
        COMPREPLY+=("${reply#"$before"}")
    done < <("${words[0]}" completion --words -- "${words[@]:1}" 2>/dev/null)
    if [[ "${#COMPREPLY[@]}" == 1 && "${COMPREPLY[0]}" == *[=/] ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _greenfast greenfast
"""
ZSH = r"""#compdef greenfast
# greenfast: completion for zsh. Load it with: source <(greenfast completion zsh)
_greenfast() {
    local value text
    local -a values
    while IFS=$'\t' read -r value text; do
        values+=("${value//:/\\:}${text:+:$text}")
    done < <("${words[1]}" completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#values} )); then
        _describe -V greenfast values
    else
        _files
    fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _greenfast greenfast
"""
FISH = r"""# greenfast: completion for fish. Load it with: greenfast completion fish | source
function __greenfast_words
    set -l words (commandline -opc) (commandline -ct)
    set -l offers ($words[1] completion --words -- $words[2..-1] 2>/dev/null)
    if set -q offers[1]
        printf '%s\n' $offers
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c greenfast -f -a '(__greenfast_words)'
"""
SCRIPTS = {"bash": BASH, "fish": FISH, "zsh": ZSH}


def completion(
    shell: Annotated[list[str], typer.Argument(metavar="SHELL", help="bash, fish or zsh.")],
    words: Annotated[bool, typer.Option("--words", hidden=True)] = False,
) -> int:
    """Print the completion script for a shell.

    It completes commands, options, kernels, templates, presets, workloads, targets, and the ids of
    searches.

    bash: `source <(greenfast completion bash)` in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc.
    fish: `greenfast completion fish > ~/.config/fish/completions/greenfast.fish`.
    """
    if words:
        from greenfast.app.cli.completing import completions

        for value, text in completions(shell):
            sys.stdout.write(f"{value}\t{text}\n")
        return 0
    if len(shell) != 1 or shell[0] not in SCRIPTS:
        raise UsageError(
            f"there is no completion for {' '.join(shell)!r}",
            code="unknown_shell",
            mend=f"known: {', '.join(SCRIPTS)}",
        )
    sys.stdout.write(SCRIPTS[shell[0]])
    return 0
