//! `quell config show`: every setting, and where it comes from.

use std::process::ExitCode;

use crate::args::{ConfigArgs, ConfigVerb};

/// Prints the settings; a configuration that can't be used is an error.
pub fn config(args: &ConfigArgs) -> ExitCode {
    match &args.verb {
        ConfigVerb::Show(show) => here::show(show.json),
    }
}

mod here {
    use std::fmt::Write;
    use std::path::Path;
    use std::process::ExitCode;

    use quell::binary::config::{Config, Layer, Loaded};
    use quell::binary::printable;
    use quell::binary::responses::ConfigAnswer;

    use crate::output;

    /// The width that every terminal has.
    const WIDTH: usize = 80;

    pub(super) fn show(json: bool) -> ExitCode {
        let loaded = match Config::load_here() {
            Ok(loaded) => loaded,
            Err(error) => return crate::verbs::fail("config", json, &error),
        };
        let text = if json {
            format!("{}\n", quell::binary::success("config", &ConfigAnswer::from(&loaded)))
        } else {
            let home = std::env::var_os("HOME").filter(|home| home.len() > 1);
            describe(&loaded, home.as_deref().map(Path::new))
        };
        output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS)
    }

    /// A table of key, value and origin, no wider than [`WIDTH`]; then the files with their whole paths, which the table
    /// may have had to cut, and the warnings.
    fn describe(loaded: &Loaded, home: Option<&Path>) -> String {
        let mut rows = vec![["KEY".to_owned(), "VALUE".to_owned(), "FROM".to_owned()]];
        for sourced in &loaded.values {
            let value = if sourced.value.is_empty() { "(none)" } else { &sourced.value };
            rows.push([
                sourced.key.clone(),
                printable(value),
                printable(&shorten(&sourced.source.to_string(), home)),
            ]);
        }
        let [keys, values, sources] =
            [0, 1, 2].map(|column| rows.iter().map(move |row| length(&row[column])).max());
        let keys = keys.unwrap_or(0);
        let rest = WIDTH.saturating_sub(keys + 4);
        // If two columns are too wide together, each gets half of the width, or what the other one leaves.
        let values = values.unwrap_or(0).min(rest.saturating_sub(sources.unwrap_or(0)).max(rest / 2));
        let mut text = String::new();
        for [key, value, source] in &rows {
            let value = cut_end(value, values);
            let gap = " ".repeat(values - length(&value));
            let _ = writeln!(text, "{key:keys$}  {value}{gap}  {}", cut_start(source, rest - values));
        }
        text.push('\n');
        for file in &loaded.files {
            let (name, note) = match (file.layer, file.trusted) {
                (Layer::User, _) => ("user", ""),
                (Layer::Project, true) => ("project", " (trusted)"),
                (Layer::Project, false) => ("project", ""),
                (Layer::Machine, _) => ("machine", ""),
            };
            let _ = writeln!(text, "{name} file: {}{note}", printable(&file.path.display().to_string()));
        }
        if loaded.files.is_empty() {
            text.push_str("no configuration file\n");
        }
        for warning in &loaded.warnings {
            let _ = writeln!(text, "warning: {}", printable(warning));
        }
        text
    }

    /// A path below the home with `~`.
    fn shorten(text: &str, home: Option<&Path>) -> String {
        match home.and_then(|home| Path::new(text).strip_prefix(home).ok()) {
            Some(rest) => format!("~/{}", rest.display()),
            None => text.to_owned(),
        }
    }

    fn length(text: &str) -> usize {
        text.chars().count()
    }

    fn cut_end(text: &str, width: usize) -> String {
        if length(text) <= width {
            return text.to_owned();
        }
        text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    }

    /// Cut at its beginning: the end of a path and its line matter most.
    fn cut_start(text: &str, width: usize) -> String {
        if length(text) <= width {
            return text.to_owned();
        }
        let skipped = length(text) + 1 - width.max(1);
        ['…'].into_iter().chain(text.chars().skip(skipped)).collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_too_wide_is_cut_to_the_width() {
            assert_eq!((cut_end("abcdef", 4).as_str(), cut_start("abcdef", 4).as_str()), ("abc…", "…def"));
            assert_eq!((cut_end("äöü", 3).as_str(), cut_start("äöü", 3).as_str()), ("äöü", "äöü"));
        }

        #[test]
        fn a_path_below_the_home_is_shown_with_a_tilde() {
            let home = Some(Path::new("/home/u"));
            assert_eq!(shorten("/home/u/x.toml:3", home), "~/x.toml:3");
            assert_eq!(shorten("/home/user/x.toml:3", home), "/home/user/x.toml:3");
            assert_eq!(shorten("default", home), "default");
        }
    }
}
