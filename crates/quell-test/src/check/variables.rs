//! Environment variables that make a runner, its language or its loader load code, choose other tests, or write files.

use quell_guard::matches;

/// Variables that are removed for test runs with a scope. The list can't be complete: every other variable is passed on. Variables that say
/// where tools are installed (PATH, HOME, CARGO_HOME, RUSTUP_HOME, PYENV_ROOT) are not listed, as most runners don't work without them.
const REFUSED: &str = "\
    *_PRELOAD *_WRAPPER *_OPTIONS *_BINARY *_BINARY_PATH *_LIBRARY_PATH *_PLUGIN_PATH *_CREDENTIAL_PROVIDER* \
    *_RUSTFLAGS *_EXEC_PATH *_SSH_COMMAND *_STARTUP_HOOKS *_HOOK_PATH \
    GCONV_PATH LOCPATH NLSPATH GLIBC_TUNABLES OPENSSL_* KRB5_CONFIG SASL_PATH GTK_MODULES GTK_PATH GIO_* \
    BASHOPTS ENV SHELLOPTS PS4 PROMPT_COMMAND ZDOTDIR FPATH \
    CC CXX AR LD CPP CC_* CXX_* AR_* CFLAGS CXXFLAGS CPPFLAGS LDFLAGS HOST_CC TARGET_CC COMPILER_PATH \
    CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH GCC_* CCACHE_* CMAKE_* PKG_CONFIG* \
    MAKEFILES MAKEFLAGS GNUMAKEFLAGS MFLAGS \
    COVERAGE_* COV_CORE_* HYPOTHESIS_STORAGE_DIRECTORY PIP_* \
    CARGO RUSTC RUSTC_* RUSTDOC RUSTDOCFLAGS RUSTFLAGS NEXTEST_* \
    GCCGO GOAUTH GOCACHEPROG GOENV GOFLAGS GOPACKAGESDRIVER GOROOT GOTOOLCHAIN GOTOOLDIR GOVCS GOWORK \
    GOCACHE GOCOVERDIR GOINSECURE GOMODCACHE GONOPROXY GONOSUMCHECK GONOSUMDB GOPATH GOPRIVATE GOPROXY GOSUMDB GOTMPDIR \
    GO_EXTLINK_ENABLED RUST_TARGET_PATH _ARGCOMPLETE* \
    BABEL_* JEST_* NODE_COMPILE_CACHE NODE_ICU_DATA NODE_PATH NODE_REDIRECT_WARNINGS NODE_REPL_HISTORY NODE_V8_COVERAGE \
    NYC_* NAPI_RS_* TS_NODE_* TSX_* VITEST* VITE_NODE_* YARN_* \
    LLVM_PROFILE_FILE GCOV_* GMON_OUT_PREFIX MALLOC_TRACE SEGFAULT_OUTPUT_NAME SSLKEYLOGFILE \
    CLASSPATH PERL* RUBYLIB RUBYOPT GEM_PATH BUNDLE_* LUA_* PHPRC PHP_INI_SCAN_DIR CORECLR_* COR_*";

/// Prefixes of variables that are removed as well, each with the exceptions that are passed on.
const PREFIXES: &[(&str, &str)] = &[
    ("PYTEST_", "PYTEST_ADDOPTS PYTEST_DISABLE_PLUGIN_AUTOLOAD PYTEST_XDIST_AUTO_NUM_WORKERS"),
    (
        "PYTHON",
        "PYTHONASYNCIODEBUG PYTHONCOERCECLOCALE PYTHONDEVMODE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER \
         PYTHONHASHSEED PYTHONIOENCODING PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONSAFEPATH PYTHONTRACEMALLOC \
         PYTHONUNBUFFERED PYTHONUTF8 PYTHONVERBOSE",
    ),
    (
        "CARGO_",
        "CARGO_HOME CARGO_HTTP_* CARGO_INCREMENTAL CARGO_MANIFEST_* CARGO_NET_* CARGO_PKG_* CARGO_PROFILE_* \
         CARGO_REGISTRIES_* CARGO_REGISTRY_DEFAULT CARGO_REGISTRY_TOKEN CARGO_TERM_*",
    ),
    ("CGO_", "CGO_ENABLED"),
    ("BASH_", ""),
    ("LD_", ""),
    ("GIT_", "GIT_AUTHOR_* GIT_COMMITTER_* GIT_BRANCH GIT_COMMIT GIT_PREVIOUS_* GIT_TERMINAL_PROMPT GIT_URL"),
    ("UV_", "UV_CACHE_DIR UV_FROZEN UV_LINK_MODE UV_LOCKED UV_NO_CACHE UV_NO_PROGRESS UV_NO_SYNC UV_OFFLINE"),
    ("RUSTUP_", "RUSTUP_HOME RUSTUP_TERM_COLOR"),
    (
        "PIPENV_",
        "PIPENV_ACTIVE PIPENV_CACHE_DIR PIPENV_IGNORE_VIRTUALENVS PIPENV_VENV_IN_PROJECT PIPENV_VERBOSITY",
    ),
    ("PDM_", "PDM_CACHE_DIR PDM_CHECK_UPDATE PDM_IGNORE_SAVED_PYTHON PDM_NON_INTERACTIVE"),
    (
        "POETRY_",
        "POETRY_ACTIVE POETRY_CACHE_DIR POETRY_HOME POETRY_HTTP_BASIC_* POETRY_NO_INTERACTION POETRY_PYPI_TOKEN_* \
         POETRY_VERSION POETRY_VIRTUALENVS_CREATE POETRY_VIRTUALENVS_IN_PROJECT",
    ),
    ("HATCH_", "HATCH_CACHE_DIR HATCH_DATA_DIR HATCH_QUIET HATCH_VERBOSE"),
    ("COREPACK_", "COREPACK_ENABLE_* COREPACK_HOME"),
    ("BUN_", "BUN_INSTALL"),
    ("ASDF_", "ASDF_DATA_DIR ASDF_DIR"),
    ("MISE_", "MISE_CACHE_DIR MISE_DATA_DIR MISE_SHELL"),
    ("PYENV_", "PYENV_ROOT PYENV_SHELL PYENV_VIRTUALENV_INIT"),
    ("RBENV_", "RBENV_ROOT RBENV_SHELL"),
    ("NODENV_", "NODENV_ROOT NODENV_SHELL"),
    ("GOENV_", "GOENV_ROOT GOENV_SHELL"),
];

/// Variables that say where programs, and the settings and packages of tools, are. Those of wrappers and version managers are all among them.
const LOCATIONS: &str = "\
    PATH HOME *_HOME GOPATH GOCACHE GOMODCACHE VIRTUAL_ENV CONDA_* XDG_* QUELL_* RUSTUP_* \
    UV_* PIPENV_* PDM_* POETRY_* HATCH_* RYE_* COREPACK_* BUN_* \
    ASDF_* MISE_* PYENV_* RBENV_* NODENV_* GOENV_* NVM_* FNM_* VOLTA_*";

/// Whether a variable says where a runner finds its programs and settings. With a scope, `env NAME=VALUE` may not set it.
pub(super) fn locates_programs(name: &str) -> bool {
    LOCATIONS.split_whitespace().any(|pattern| matches(pattern, name))
}

/// Whether a variable can make a runner load code, choose other tests, or write a file.
pub(super) fn is_runner_variable(name: &str) -> bool {
    let fits = |list: &str| list.split_whitespace().any(|pattern| matches(pattern, name));
    // npm ignores case in these. pnpm has them with its own name, too.
    let rest = name.strip_prefix(['p', 'P']).filter(|rest| rest.starts_with(['n', 'N'])).unwrap_or(name);
    let npm = rest.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("npm_config_"));
    npm || fits(REFUSED) || PREFIXES.iter().any(|(family, kept)| name.starts_with(family) && !fits(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_can_load_code_are_known() {
        for name in [
            "PYTEST_PLUGINS",
            "PYTEST_DEBUG_TEMPROOT",
            "COVERAGE_FILE",
            "COVERAGE_DEBUG_FILE",
            "NODE_V8_COVERAGE",
            "NODE_REDIRECT_WARNINGS",
            "LLVM_PROFILE_FILE",
            "GOCOVERDIR",
            "GCOV_PREFIX",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PYTHONHOME",
            "PYTHONWARNINGS",
            "PYTHONBREAKPOINT",
            "RUSTFLAGS",
            "RUSTC_WRAPPER",
            "RUSTUP_TOOLCHAIN",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_ALIAS_T",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "CARGO_TARGET_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
            "GOFLAGS",
            "GOTOOLCHAIN",
            "GOENV",
            "GOWORK",
            "CGO_CFLAGS",
            "NODE_OPTIONS",
            "NODE_PATH",
            "JEST_JASMINE",
            "VITEST",
            "npm_config_node_options",
            "LD_PRELOAD",
            "BASH_ENV",
            "BASH_FUNC_x%%",
            "LD_DEBUG_OUTPUT",
            "GCONV_PATH",
            "LOCPATH",
            "OPENSSL_CONF",
            "COMPILER_PATH",
            "GCC_EXEC_PREFIX",
            "ESBUILD_BINARY_PATH",
            "SWC_BINARY_PATH",
            "NAPI_RS_NATIVE_LIBRARY_PATH",
            "GIT_SSH_COMMAND",
            "GIT_EXEC_PATH",
            "GIT_CONFIG_KEY_0",
            "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS",
            "CARGO_REGISTRIES_X_CREDENTIAL_PROVIDER",
            "CARGO_PROFILE_DEV_RUSTFLAGS",
            "PERLLIB",
            "PERL5OPT",
            "ZDOTDIR",
            "PS4",
            "PKG_CONFIG",
            "PKG_CONFIG_PATH",
            "Npm_Config_Script_Shell",
            "pnpm_config_script_shell",
            "PYENV_HOOK_PATH",
            "PYENV_VERSION",
            "RBENV_HOOK_PATH",
            "NODENV_HOOK_PATH",
            "PLENV_HOOK_PATH",
            "RUSTUP_DIST_SERVER",
            "PIPENV_PIPFILE",
            "PIPENV_DOTENV_LOCATION",
            "PDM_PROJECT",
            "POETRY_CONFIG_DIR",
            "POETRY_VIRTUALENVS_PATH",
            "HATCH_CONFIG",
            "COREPACK_ROOT",
            "COREPACK_NPM_REGISTRY",
            "ASDF_CONFIG_FILE",
            "ASDF_PYTHON_VERSION",
            "MISE_ENV_FILE",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "DOTNET_STARTUP_HOOKS",
            "UV_INDEX_URL",
            "MAKEFLAGS",
            "GOPATH",
            "GOCACHE",
            "GOMODCACHE",
            "GOPROXY",
            "GONOSUMDB",
            "RUST_TARGET_PATH",
            "_ARGCOMPLETE",
        ] {
            assert!(is_runner_variable(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "CI",
            "TMPDIR",
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "PYTEST_ADDOPTS",
            "CARGO_HOME",
            "CARGO_TERM_COLOR",
            "RUSTUP_HOME",
            "PYENV_ROOT",
            "ASDF_DATA_DIR",
            "NVM_DIR",
            "VOLTA_HOME",
            "POETRY_CACHE_DIR",
            "COREPACK_ENABLE_DOWNLOAD_PROMPT",
            "PN",
            "RUST_BACKTRACE",
            "GOOGLE_API_KEY",
            "NODE_ENV",
            "DATABASE_URL",
            "VIRTUAL_ENV",
            "QUELL_HOME",
            "CGO_ENABLED",
            "GIT_AUTHOR_NAME",
            "LC_ALL",
            "UV_CACHE_DIR",
            "SSH_AUTH_SOCK",
            "CARGO_REGISTRY_TOKEN",
            "",
        ] {
            assert!(!is_runner_variable(name), "{name}");
        }
    }
}
