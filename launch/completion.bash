# Completes the commands of launch/ in bash, from the root of the repository:
#
#   source launch/completion.bash
#
# Then Tab completes launchers (python -m launch.ev), their flags (--work), files of
# settings (--config=configs/) and settings (--config.learn). Flags and settings are
# those of the launcher's --help, which takes a few seconds when it is first asked.

# Prints the flags and settings of: python, launcher, config.
_disco_rl_flags() {
  "$1" -m "$2" ${3:+"--config=$3"} --help 2> /dev/null | sed -nE \
    -e 's/^  (--[a-z_]+)(=.*| .*)?$/\1=/p' \
    -e 's/^  ([a-z_][a-z0-9_.]*)=.*$/--config.\1=/p'
}

_disco_rl() {
  local line=${COMP_LINE:0:COMP_POINT} config='' key words word
  local current=${line##*[[:space:]]}
  read -ra words <<< "$line"
  # Anything else that Python runs is completed as files are.
  [[ ${words[1]-} == -m && $line == *' launch.'* ]] || return
  compopt -o nospace 2> /dev/null
  case $current in
    launch.*)
      compopt +o nospace 2> /dev/null
      word=$(grep -l '__main__' launch/*.py | sed -E 's|/(.*)\.py|.\1|')
      ;;
    --config=*)
      # Bash takes what follows the equals sign for a word of its own.
      current=${current#--config=}
      word=$(compgen -f -X '!*.py' -- "$current"; compgen -d -S / -- "$current")
      ;;
    --*)
      for word in "${words[@]}"; do
        [[ $word == --config=* ]] && config=${word#--config=}
      done
      key="${words[0]} ${words[2]} $config"
      if [[ $key != "${_DISCO_RL_KEY-}" ]]; then
        _DISCO_RL_FLAGS=$(_disco_rl_flags "${words[0]}" "${words[2]}" "$config")
        _DISCO_RL_KEY=$key
      fi
      word=$_DISCO_RL_FLAGS
      ;;
    *) return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
}

complete -o default -F _disco_rl python python3 .venv/bin/python
