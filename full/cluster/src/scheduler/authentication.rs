//! Authentication of requests: refuses every request without the secret of the cluster, whatever it
//! asks for, before anything of it is read but its headers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::listener::PeerAddress;
use super::refusal_log::RefusalLog;
use crate::credentials::Secret;

/// These routes, for requests with this secret only, if there is one.
pub(super) fn authenticated(
    routes: Router,
    secret: Option<Secret>,
    refusals: Arc<RefusalLog>,
) -> Router {
    let authentication = Arc::new(Authentication { secret, refusals });
    routes.layer(from_fn_with_state(authentication, authenticate))
}

struct Authentication {
    secret: Option<Secret>,
    refusals: Arc<RefusalLog>,
}

async fn authenticate(
    State(authentication): State<Arc<Authentication>>,
    ConnectInfo(PeerAddress(peer)): ConnectInfo<PeerAddress>,
    mut request: Request,
    next: Next,
) -> Response {
    // Nothing behind this needs the secret, so nothing can log it.
    let header = request.headers_mut().remove(AUTHORIZATION);
    let is_authenticated = match (&authentication.secret, &header) {
        (Some(secret), Some(header)) => secret.matches(header),
        (Some(_), None) => false,
        (None, _) => true,
    };
    if is_authenticated {
        // Where Ballista looks for it.
        request.extensions_mut().insert(ConnectInfo(peer));
        return next.run(request).await;
    }
    let reason = if header.is_some() { "a wrong secret" } else { "no secret" };
    authentication.refusals.push(peer, reason);
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response()
}
