# Completes commands in bash: launchers, their flags (--work), configs
# (--config=q) and settings (--config.learn). Flags and settings are those of the
# launcher's --help, which takes a few seconds the first time.
#
#   eval "$(disco-rl --completion)"
#
# completes `disco-rl` and, in a clone, `python -m launch.NAME`.

# Prints the flags and settings of a launcher and a config.
_disco_rl_flags() {
  "$@" --help 2> /dev/null | sed -nE \
    -e 's/^  (--[a-z_]+)(=.*| .*)?$/\1=/p' \
    -e 's/^  ([a-z_][a-z0-9_.]*)=.*$/--config.\1=/p'
}

# Prints the commands, or the configs, of disco-rl.
_disco_rl_names() {
  "$1" --help | sed -nE "/^$2/,/^\$/s/^  ([a-z0-9_-]+).*/\1/p"
}

_disco_rl() {
  local line=${COMP_LINE:0:COMP_POINT} config='' key words word launcher
  local current=${line##*[[:space:]]}
  read -ra words <<< "$line"
  if [[ ${words[0]} == *disco-rl ]]; then
    launcher=("${words[@]:0:2}")
  elif [[ ${words[1]-} == -m && $line == *' launch.'* ]]; then
    launcher=("${words[@]:0:3}")
  else
    return  # For other programs in Python, files are completed.
  fi
  compopt -o nospace 2> /dev/null
  case $current in
    launch.*)
      compopt +o nospace 2> /dev/null
      word=$(grep -l '__main__' launch/*.py | sed -E 's|/(.*)\.py|.\1|')
      ;;
    --config=*)
      # Bash treats what follows the equals sign as a separate word.
      current=${current#--config=}
      word=$(compgen -f -X '!*.py' -- "$current"; compgen -d -S / -- "$current")
      [[ ${#launcher[@]} == 2 ]] \
        && word+=" $(_disco_rl_names "${words[0]}" Configs)"
      ;;
    --*)
      for word in "${words[@]}"; do
        [[ $word == --config=* ]] && config=$word
      done
      key="${launcher[*]} $config"
      if [[ $key != "${_DISCO_RL_KEY-}" ]]; then
        _DISCO_RL_FLAGS=$(_disco_rl_flags "${launcher[@]}" ${config:+"$config"})
        _DISCO_RL_KEY=$key
      fi
      word=$_DISCO_RL_FLAGS
      ;;
    *)
      [[ ${#launcher[@]} == 2 && $line != *disco-rl*[[:space:]]*[[:space:]]* ]] \
        || return
      compopt +o nospace 2> /dev/null
      word=$(_disco_rl_names "${words[0]}" Commands)
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
}

complete -o default -F _disco_rl disco-rl .venv/bin/disco-rl \
  python python3 .venv/bin/python
