//! The handlers of requests, one file for each subject.

mod accounts;
mod clusters;
mod downloads;
mod fields;
mod jobs;
mod lists;
mod older;
mod sockets;
mod submit;
mod table;
mod uploads;

use crate::app::App;
use crate::boot::BootType::{Grub, Ipxe, Libvirt, Native};
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{any, get, post};
use sockets::boot;

/// The paths of the interface, with their handlers. Tests read them from this file's text.
pub(crate) fn routes() -> Router<App> {
    let jobs = Router::new()
        .route("/submit", post(submit::submit))
        .route("/dispatch", get(sockets::dispatch))
        .route("/wait", post(jobs::wait))
        .route("/{id}", get(jobs::show))
        .route("/{id}/update", post(jobs::update))
        .route("/{id}/cancel", post(jobs::cancel))
        .route("/{id}/terminate", post(jobs::terminate));
    let dashboard = Router::new()
        .route("/jobs/pending", get(lists::pending))
        .route("/jobs/running", get(lists::running))
        .route("/hosts", get(lists::hosts))
        .route("/accounts", get(accounts::list));
    let api = Router::new()
        .nest("/jobs", jobs)
        .nest("/dashboard", dashboard)
        .route("/health", get(lists::health))
        .route("/debug/dispatch", get(lists::debug))
        .route("/hosts/{hostname}", get(lists::host).post(lists::register))
        .route("/accounts/{name}", post(accounts::create))
        .route("/clusters/{name}", get(clusters::show).post(clusters::register))
        .route("/client", any(sockets::client))
        .route("/vm-container-provider/{host}", any(sockets::provider));
    Router::new()
        .nest("/scheduler/v1", api)
        .route("/", get(lists::health))
        .route("/submit_job", post(submit::submit))
        .route("/boot.ipxe/{parameter}/{value}", get(|app, path, asked| boot(app, path, asked, Ipxe)))
        .route("/boot.grub/{parameter}/{value}", get(|app, path, asked| boot(app, path, asked, Grub)))
        .route("/boot.native/{parameter}/{value}", get(|app, path, asked| boot(app, path, asked, Native)))
        .route("/boot.libvirt/{parameter}/{value}", get(|app, path, asked| boot(app, path, asked, Libvirt)))
        .route("/job_initrd_tmpfs/{id}/job.cgz", get(downloads::get_archive))
        .route("/srv/{*path}", get(downloads::get_file).post(uploads::put_file).put(uploads::put_file))
        .route("/result/{*path}", post(uploads::put_result).put(uploads::put_result))
        .merge(older::routes())
        .route_layer(map_response(isolated))
}

/// Browsers may show an answer and nothing else. Answers have the origin of the board, and users bring the files, which
/// must not become scripts or pages of that origin.
const POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

/// Forbids browsers to guess an answer's type, and to run anything in it.
async fn isolated(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
