
# Pipelines: files that end in .toml, folders that may have some, and the names of built-in ones.
_sluice_with_pipelines() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" word verb=""
    # Bash splits `--from=lcm` into three words.
    if [[ "${cur}" == "=" && "${prev}" == --* ]]; then
        _sluice "$1" "" "${prev}"
    elif [[ "${prev}" == "=" && "${COMP_WORDS[COMP_CWORD-2]}" == --* ]]; then
        _sluice "$1" "${cur}" "${COMP_WORDS[COMP_CWORD-2]}"
    else
        _sluice "$@"
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "${word}" in
            @VERBS@)
                verb="${word}"
                break
                ;;
            -*|auto|always|never|text|json) ;;
            *)
                return 0
                ;;
        esac
    done
    if [[ -z "${verb}" || "${cur}" == -* || "${cur}" == "=" ]]; then
        return 0
    fi
    case "${prev}" in
        =|@OPTIONS@)
            return 0
            ;;
    esac
    local IFS=$'\n'
    COMPREPLY=(
        $(IFS=' ' compgen -W "@PIPELINES@" -- "${cur}")
        $(compgen -f -X '!*.toml' -- "${cur}")
        $(compgen -d -- "${cur}")
    )
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        compopt -o filenames 2>/dev/null
    fi
    return 0
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _sluice_with_pipelines -o nosort -o bashdefault -o default sluice
else
    complete -F _sluice_with_pipelines -o bashdefault -o default sluice
fi
