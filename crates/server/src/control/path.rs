//! Names in the paths of requests.

use axum::extract::{self, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// Parameters of a path, as axum's of the same name; a path that has none gets an error of the API.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, ApiError> {
        let path = extract::Path::from_request_parts(parts, state).await;
        // All parameters are text, which only bytes that are no text can fail to be.
        let extract::Path(parameters) = path.map_err(|_| {
            let what = "a name in the path is not UTF-8";
            ApiError::new(StatusCode::BAD_REQUEST, what, "path")
        })?;
        Ok(Path(parameters))
    }
}
