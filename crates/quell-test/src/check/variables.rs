//! Environment variables that make a runner, its language or its loader load code, choose other tests, or write files.

use quell_guard::matches;

/// Variables that are removed for test runs with a scope. Every other variable is passed on, as tests need their own ones, so this list and
/// [`PREFIXES`] have what interpreters, runners and loaders read when they start. Variables that say where tools are installed (PATH, HOME,
/// CARGO_HOME, RUSTUP_HOME, PYENV_ROOT) are not listed, as most runners don't work without them.
const REFUSED: &str = "\
    *_PRELOAD *_WRAPPER *_OPTIONS *_OPTS *_BINARY *_BINARY_PATH *_LIBRARY_PATH *_MODULE_PATH *_PLUGIN_PATH \
    *_CREDENTIAL_PROVIDER* *_RUSTFLAGS *_EXEC_PATH *_SSH_COMMAND *_STARTUP_HOOKS *_HOOK_PATH \
    GCONV_PATH LOCPATH NLSPATH GLIBC_TUNABLES LIBPATH SHLIB_PATH OPENSSL_* KRB5_CONFIG SASL_PATH GTK_MODULES GTK_PATH GIO_* \
    BASHOPTS CDPATH ENV EXECIGNORE GLOBIGNORE NULLCMD READNULLCMD SHELLOPTS PS4 PROMPT_COMMAND ZDOTDIR FPATH AWKPATH \
    AWKLIBPATH \
    CC CXX AR LD CPP FC RANLIB CC_* CXX_* AR_* CFLAGS CXXFLAGS CPPFLAGS LDFLAGS FFLAGS HOST_AR HOST_CC HOST_CXX TARGET_AR \
    TARGET_CC TARGET_CXX COMPILER_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH GCC_* CCACHE_* SCCACHE_* \
    DISTCC_* CMAKE CMAKE_* NINJA PKG_CONFIG* BINDGEN_* CLANG_PATH LIBCLANG_PATH LLVM_CONFIG_PATH PROTOC PROTOC_* PYO3_* \
    MAKE MAKEFILES MAKEFLAGS GNUMAKEFLAGS MFLAGS \
    COVERAGE_* COV_CORE_* HYPOTHESIS_STORAGE_DIRECTORY PIP_* SETUPTOOLS_* DISTUTILS_* DIST_EXTRA_CONFIG PY_SAX_PARSER \
    JYTHON* IPYTHON* JUPYTER_* MPLBACKEND MPLCONFIGDIR NUMBA_* BOTOCORE_EXPERIMENTAL* DEBUGPY_* PYDEVD_* MYPYPATH \
    CARGO RUSTC RUSTC_* RUSTDOC RUSTDOCFLAGS RUSTFLAGS RUSTFMT NEXTEST_* CLIPPY_* MIRI* SYSROOT \
    GCCGO GOAUTH GOCACHEPROG GOENV GOFLAGS GOPACKAGESDRIVER GOROOT GOTOOLCHAIN GOTOOLDIR GOVCS GOWORK \
    GOCACHE GOCOVERDIR GOINSECURE GOMODCACHE GONOPROXY GONOSUMCHECK GONOSUMDB GOPATH GOPRIVATE GOPROXY GOSUMDB GOTMPDIR \
    GOSSA* GO_EXTLINK_ENABLED RUST_TARGET_PATH \
    BABEL_* ESBUILD_* ESBK_* JEST_* JITI_* NYC_* NAPI_RS_* SWC* SUCRASE_* TS_NODE_* TSX_* VITEST* VITE_NODE_* YARN_* \
    npm_execpath npm_node_execpath \
    LLVM_PROFILE_FILE GCOV_* GMON_OUT_PREFIX MALLOC_CONF MALLOC_TRACE SEGFAULT_OUTPUT_NAME SSLKEYLOGFILE \
    PERL* HARNESS_* T2_* LUA_* LUAROCKS_* PHPRC PHP_INI_SCAN_DIR COMPOSER COMPOSER_VENDOR_DIR XDEBUG_CONFIG \
    GEM_PATH GEM_SPEC_CACHE BUNDLE_* BUNDLER_* CLASSPATH JAVACMD CORECLR_* COR_* COMPlus_* MSBuild* MSBUILD* NUGET_* MONO_* \
    RHOME RENV_* RETICULATE_* ESCRIPT_* ERLC_* CT_RUN_EMULATOR ELIXIR_* REBAR_* TCL* TK_LIBRARY TIX_LIBRARY TILE_LIBRARY \
    OCAML* CAML_* GHC_* GHCRTS";

/// Prefixes of variables that are removed as well, each with the exceptions that are passed on. What a new version of an interpreter
/// reads usually has its prefix, so these rules also hold for it.
const PREFIXES: &[(&str, &str)] = &[
    // Interpreters and tools use such names among themselves (`__PYVENV_LAUNCHER__`, `_PYTHON_SYSCONFIGDATA_NAME`, `_JAVA_OPTIONS`).
    ("_", "_ _X_AMZN_TRACE_ID __CF_USER_TEXT_ENCODING"),
    ("PYTEST_", "PYTEST_ADDOPTS PYTEST_DISABLE_PLUGIN_AUTOLOAD PYTEST_XDIST_AUTO_NUM_WORKERS"),
    (
        "PYTHON",
        "PYTHONASYNCIODEBUG PYTHONCOERCECLOCALE PYTHONDEVMODE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER \
         PYTHONHASHSEED PYTHONIOENCODING PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONSAFEPATH PYTHONTRACEMALLOC \
         PYTHONUNBUFFERED PYTHONUTF8 PYTHONVERBOSE",
    ),
    (
        "NODE_",
        "NODE_APP_INSTANCE NODE_AUTH_TOKEN NODE_CONFIG NODE_CONFIG_ENV NODE_DEBUG NODE_DEBUG_NATIVE NODE_DISABLE_COLORS \
         NODE_ENV NODE_EXTRA_CA_CERTS NODE_HOST NODE_ID NODE_IP NODE_NAME NODE_NO_WARNINGS NODE_PENDING_DEPRECATION \
         NODE_PORT NODE_TLS_REJECT_UNAUTHORIZED NODE_USE_ENV_PROXY NODE_USE_SYSTEM_CA NODE_VERSION",
    ),
    ("DENO_", "DENO_DEPLOYMENT_ID DENO_ENV DENO_NO_PROMPT DENO_NO_UPDATE_CHECK"),
    ("RUBY", "RUBY_ENGINE RUBY_GC_* RUBY_VERSION RUBY_YJIT_ENABLE"),
    ("R_", "R_HOME"),
    ("JULIA_", "JULIA_DEBUG JULIA_NUM_THREADS"),
    ("GUILE_", "GUILE_AUTO_COMPILE GUILE_WARN_DEPRECATED"),
    ("ERL_", ""),
    ("MIX_", "MIX_ENV MIX_HOME"),
    ("MAVEN_", "MAVEN_HOME"),
    ("GRADLE_", "GRADLE_HOME GRADLE_USER_HOME"),
    (
        "DOTNET_",
        "DOTNET_CLI_HOME DOTNET_CLI_TELEMETRY_OPTOUT DOTNET_ENVIRONMENT DOTNET_NOLOGO DOTNET_ROOT \
         DOTNET_RUNNING_IN_CONTAINER* DOTNET_SKIP_FIRST_TIME_EXPERIENCE DOTNET_SYSTEM_GLOBALIZATION_INVARIANT \
         DOTNET_SYSTEM_NET_* DOTNET_USE_POLLING_FILE_WATCHER DOTNET_VERSION",
    ),
    ("DYLD_", ""),
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
            "__PYVENV_LAUNCHER__",
            "_PYTHON_SYSCONFIGDATA_NAME",
            "_PYTHON_PROJECT_BASE",
            "_PYTHON_HOST_PLATFORM",
            "_PYTHON_HOSTRUNNER",
            "_PIP_STANDALONE_CERT",
            "PYTHON_PRESITE",
            "PYTHON_HISTORY",
            "PY_SAX_PARSER",
            "JYTHONPATH",
            "IPYTHONDIR",
            "JUPYTER_CONFIG_DIR",
            "MPLBACKEND",
            "MPLCONFIGDIR",
            "NUMBA_CACHE_DIR",
            "BOTOCORE_EXPERIMENTAL__PLUGINS",
            "SETUPTOOLS_SYS_PATH_TECHNIQUE",
            "DIST_EXTRA_CONFIG",
            "R_PROFILE",
            "R_PROFILE_USER",
            "R_ENVIRON",
            "R_ENVIRON_USER",
            "R_LIBS",
            "R_LIBS_SITE",
            "R_DEFAULT_PACKAGES",
            "RHOME",
            "RENV_PROJECT",
            "JULIA_LOAD_PATH",
            "JULIA_PROJECT",
            "JULIA_DEPOT_PATH",
            "JULIA_BINDIR",
            "GUILE_LOAD_PATH",
            "GUILE_LOAD_COMPILED_PATH",
            "GUILE_EXTENSIONS_PATH",
            "ERL_FLAGS",
            "ERL_AFLAGS",
            "ERL_ZFLAGS",
            "ERL_LIBS",
            "ERL_ROOTDIR",
            "ERL_INETRC",
            "ESCRIPT_EMULATOR",
            "ELIXIR_ERL_OPTIONS",
            "MIX_EXS",
            "REBAR_CONFIG",
            "TCLLIBPATH",
            "TCL_LIBRARY",
            "TCL8_6_TM_PATH",
            "TK_LIBRARY",
            "TIX_LIBRARY",
            "JITI_ALIAS",
            "JITI_FS_CACHE",
            "ESBUILD_WORKER_THREADS",
            "SWCRC",
            "DENO_DIR",
            "NODE_REPL_EXTERNAL_MODULE",
            "NODE_CHANNEL_FD",
            "NODE_CONFIG_DIR",
            "NODE_SOMETHING_NEW",
            "npm_execpath",
            "RUBYPATH",
            "RUBYSHELL",
            "RUBYGEMS_GEMDEPS",
            "RUBYLIB_PREFIX",
            "RUBY_DEBUG_INIT_SCRIPT",
            "BUNDLER_SETUP",
            "BUNDLE_GEMFILE",
            "DLN_LIBRARY_PATH",
            "GEM_SPEC_CACHE",
            "HARNESS_PERL",
            "HARNESS_SUBCLASS",
            "T2_FORMATTER",
            "LUA_INIT_5_4",
            "LUAROCKS_CONFIG",
            "COMPOSER_VENDOR_DIR",
            "XDEBUG_CONFIG",
            "JDK_JAVA_OPTIONS",
            "IBM_JAVA_OPTIONS",
            "JAVA_OPTS",
            "MAVEN_ARGS",
            "GRADLE_OPTS",
            "JAVACMD",
            "_JAVA_SPLASH_JAR",
            "DOTNET_ADDITIONAL_DEPS",
            "DOTNET_SHARED_STORE",
            "DOTNET_GCName",
            "COMPlus_GCName",
            "MSBuildSDKsPath",
            "NUGET_PACKAGES",
            "MONO_PATH",
            "CDPATH",
            "NULLCMD",
            "READNULLCMD",
            "DYLD_INSERT_LIBRARIES",
            "AWKPATH",
            "LIBCLANG_PATH",
            "LLVM_CONFIG_PATH",
            "CMAKE",
            "MAKE",
            "PROTOC",
            "PYO3_PYTHON",
            "RUSTFMT",
            "MIRIFLAGS",
            "GOSSADIR",
            "FC",
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
            "_",
            "__CF_USER_TEXT_ENCODING",
            "NODE_TLS_REJECT_UNAUTHORIZED",
            "NODE_DEBUG",
            "NODE_EXTRA_CA_CERTS",
            "NODE_NAME",
            "NODE_CONFIG",
            "RAILS_ENV",
            "RACK_ENV",
            "RUBY_VERSION",
            "GEM_HOME",
            "MIX_ENV",
            "ERLANG_COOKIE",
            "JULIA_NUM_THREADS",
            "R_HOME",
            "JAVA_HOME",
            "MAVEN_HOME",
            "GRADLE_USER_HOME",
            "DOTNET_ROOT",
            "DOTNET_ENVIRONMENT",
            "DOTNET_CLI_TELEMETRY_OPTOUT",
            "ASPNETCORE_ENVIRONMENT",
            "DJANGO_SETTINGS_MODULE",
            "FLASK_APP",
            "REDIS_URL",
            "RUST_LOG",
            "ERROR_LOG",
            "ROOT_URL",
            "TCP_PORT",
            "LUAS_API_KEY",
            "PHP_ENV",
            "APP_PATH",
            "GOMAXPROCS",
            "GOOS",
            "TEST_MODULE_DIR",
            "AWS_PROFILE",
            "FEATURE_FLAGS",
            "PYTHONHASHSEED",
            "MAKE_REQUESTS",
            "",
        ] {
            assert!(!is_runner_variable(name), "{name}");
        }
    }
}
