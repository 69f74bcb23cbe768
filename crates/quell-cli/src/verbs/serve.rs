//! `quell serve`: jobs over HTTP, for people and programs of this user.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use quell::Error;
use quell::binary::{AccessRequest, QuellInternals};
use quell_guard::Verb;
use quell_serve::{BROWSER, ServeOptions, Serving, TokenRole};

use super::{Admitted, envelope, fail};
use crate::args::{RoleArg, ServeArgs};
use crate::errors::{self, exit};
use crate::output;

/// Serves until a signal ends it, or answers a question about the server that runs.
pub fn serve(admitted: Admitted, args: ServeArgs) -> ExitCode {
    let json = args.json;
    carry_out(admitted, args).unwrap_or_else(|error| fail("serve", json, &error))
}

fn carry_out(admitted: Admitted, args: ServeArgs) -> Result<ExitCode, Error> {
    let home = admitted.quell?.home().clone();
    if args.open {
        // The browser is a program that quell runs, like any other.
        let request =
            AccessRequest { verb: Verb::Run, target: BROWSER.into(), reason: None, job: None, through: None };
        let _allowed = quell::binary::permit(admitted.settings, Some(&home), request)?;
    }
    if let (Some(name), Some(role)) = (&args.add_token, args.role) {
        let token = quell_serve::add_token(&home, name, role.into())?;
        return Ok(said(&format!("{token}\n")));
    }
    if args.status || args.url {
        let Some(serving) = quell_serve::status(&home)? else { return Ok(not_running(args.json)) };
        let login = args.url.then(|| quell_serve::login_url(&home)).transpose()?;
        let text = match &login {
            _ if args.json => envelope("serve", &Serving { login, ..serving }),
            Some(login) => format!("{login}\n"),
            None => describe(&serving),
        };
        return Ok(said(&text));
    }
    let listen = args.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let options = ServeOptions {
        home,
        listen: (!args.no_tcp).then_some((listen, args.port)),
        allow_hosts: args.allow_host,
        open: args.open,
        hint: errors::hint,
        tell: |text| output::to_stderr(text),
    };
    quell_serve::serve(options)
}

fn said(text: &str) -> ExitCode {
    output::to_stdout(text).unwrap_or(ExitCode::SUCCESS)
}

fn not_running(json: bool) -> ExitCode {
    let error =
        errors::said("not_running", "quell serve does not run for this home", "start it with `quell serve`");
    output::fail("serve", json, exit::NO, &error)
}

fn describe(serving: &Serving) -> String {
    let url = serving.url.as_deref().unwrap_or("none (--no-tcp)");
    format!("pid      {}\nurl      {url}\nsocket   {}\n", serving.pid, serving.socket.display())
}

impl From<RoleArg> for TokenRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::View => Self::View,
            RoleArg::Stop => Self::Stop,
            RoleArg::Operate => Self::Operate,
            RoleArg::Admin => Self::Admin,
            RoleArg::Metrics => Self::Metrics,
        }
    }
}
