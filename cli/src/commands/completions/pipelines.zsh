(( $+functions[_sluice_pipelines] )) ||
_sluice_pipelines() {
    local -a names; names=(@PIPELINES@)
    _alternative 'files:pipeline file:_files -g "*.toml"' 'pipelines:built-in pipeline:compadd -a names'
}

