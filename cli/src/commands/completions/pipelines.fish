complete -c sluice -n "__fish_sluice_using_subcommand @VERB_LIST@" -f -a "@PIPELINES@" -d 'Built-in pipeline'
complete -c sluice -n "__fish_sluice_using_subcommand @VERB_LIST@" -f -a "(__fish_complete_suffix .toml)"
