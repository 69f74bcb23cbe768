//! The one table of what can be called. The router, the order of checks and the OpenAPI document are made from it.

mod jobs;
mod server;

use crate::query::{Param, ParamKind};
use crate::route::{BodyKind, Pool, Route, Verbs, Who};
use crate::{TokenRole, api};

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Route> {
    server::ROUTES.iter().chain(jobs::ROUTES)
}

const VIEW: Who = Who::Role(TokenRole::View);
const STOP: Who = Who::Role(TokenRole::Stop);
const OPERATE: Who = Who::Role(TokenRole::Operate);
const ADMIN: Who = Who::Role(TokenRole::Admin);

const fn param(name: &'static str, kind: ParamKind, about: &'static str) -> Param {
    Param { name, kind, about }
}

/// A route that reads, for the others to vary.
const READ: Route = Route {
    method: Verbs::Get,
    path: "",
    verb: None,
    who: VIEW,
    query: &[],
    body: BodyKind::None,
    pool: Pool::Reads,
    kind: "",
    answers: &[],
    errors: &[],
    about: "",
    act: |call| Box::pin(api::server::health(call)),
};

#[cfg(test)]
mod tests {
    use quell_guard::{Effect, Verb};

    use super::*;

    #[test]
    fn what_changes_something_takes_a_post_and_more_than_the_right_to_look() {
        for route in all() {
            let changes = route.verb.is_some_and(|verb| verb.effect() != Effect::Read);
            let sees_only = [Who::Anyone, VIEW, Who::Role(TokenRole::Metrics)].contains(&route.who);
            assert!(!changes || (route.method != Verbs::Get && !sees_only), "{}", route.path);
            assert!(route.verb != Some(Verb::Start) || route.who == ADMIN, "to start is to have a shell");
            assert!(
                !route.kind.is_empty() && !route.about.is_empty() && !route.answers.is_empty(),
                "{}",
                route.path
            );
        }
    }

    #[test]
    fn each_method_of_a_path_is_there_once_and_parameters_have_one_name() {
        for route in all() {
            let same = |other: &&Route| other.path == route.path && other.method == route.method;
            assert_eq!(all().filter(same).count(), 1, "{}", route.path);
            for (at, param) in route.query.iter().enumerate() {
                assert!(route.query[..at].iter().all(|other| other.name != param.name), "{}", param.name);
            }
        }
    }

    #[test]
    fn only_the_page_health_and_login_take_no_token() {
        let open: Vec<&str> =
            all().filter(|route| route.who == Who::Anyone).map(|route| route.path).collect();
        assert_eq!(open, ["/healthz", "/", "/assets/{hash}/{*file}", "/v1/login"]);
    }
}
