//! The small HTTP inbox for people and supervisors: alive, ready, metrics.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Cell;
use crate::error::BootError;
use crate::health::{Health, Report};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// Clients that keep a connection open are not waited for longer than this.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What the inbox shows.
#[derive(Clone)]
pub(crate) struct Page {
    pub service: &'static str,
    pub cell: Cell,
    pub health: Health,
    pub metrics: Metrics,
}

/// An inbox that is open until it is stopped or dropped.
pub(crate) struct Server {
    pub address: SocketAddr,
    stop: Shutdown,
    task: AbortOnDropHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn open(listen: SocketAddr, page: Page) -> Result<Server, BootError> {
        let taken = |source| BootError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let stop = Shutdown::new();
        let requested = stop.clone();
        let serving = axum::serve(listener, router(page))
            .with_graceful_shutdown(async move { requested.requested().await });
        let task = AbortOnDropHandle::new(tokio::spawn(serving.into_future()));
        Ok(Server {
            address,
            stop,
            task,
        })
    }

    /// Closes the inbox and frees its address.
    pub(crate) async fn stop(self) {
        self.stop.trigger();
        if tokio::time::timeout(STOP_TIMEOUT, self.task).await.is_err() {
            tracing::debug!("http connections cut");
        }
    }
}

fn router(page: Page) -> Router {
    Router::new()
        .route("/", get(about))
        .route(
            "/healthz",
            get(|State(page): State<Page>| async move { answer(&page.health.alive()) }),
        )
        .route(
            "/readyz",
            get(|State(page): State<Page>| async move { answer(&page.health.ready()) }),
        )
        .route("/metrics", get(metrics))
        .with_state(page)
}

async fn about(State(page): State<Page>) -> Response {
    #[derive(Serialize)]
    struct About<'a> {
        name: &'a str,
        version: &'a str,
        cell: &'a str,
    }
    let about = About {
        name: page.service,
        version: env!("CARGO_PKG_VERSION"),
        cell: &page.cell.name,
    };
    json(StatusCode::OK, &about)
}

async fn metrics(State(page): State<Page>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match page.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn answer(report: &Report) -> Response {
    json(
        if report.ok {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        report,
    )
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            text + "\n",
        )
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
