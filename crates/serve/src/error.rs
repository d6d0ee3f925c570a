//! Why a request is refused, and how every API says so.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What kind of refusal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No model is ready.
    Unhealthy,
    /// The model cannot do this, or failed at it.
    Backend,
    /// Too much is waiting already.
    Overloaded,
    /// A field has a value that makes no sense.
    Validation,
    /// Too many inputs, too long an input, too large a body.
    TooLarge,
    /// The text cannot be turned into tokens.
    Tokenizer,
    /// There is no input.
    Empty,
    /// The body is not JSON.
    Malformed,
    /// The body does not say that it is JSON.
    MediaType,
    /// There is no such route or model.
    NotFound,
    /// The route exists, not with this method.
    Method,
    /// The key is missing or wrong.
    Unauthorized,
    /// Nobody may do this here.
    Forbidden,
    /// The body came too slowly.
    Slow,
    /// The answer took too long.
    Timeout,
}

impl Kind {
    /// The status of an answer.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Kind::Unhealthy => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Backend => StatusCode::FAILED_DEPENDENCY,
            Kind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Kind::Validation | Kind::Tokenizer => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::Empty | Kind::Malformed => StatusCode::BAD_REQUEST,
            Kind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Method => StatusCode::METHOD_NOT_ALLOWED,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Slow => StatusCode::REQUEST_TIMEOUT,
            Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The name in text-embeddings-inference's `error_type`, as that server writes it.
    fn name(self) -> &'static str {
        match self {
            Kind::Unhealthy => "Unhealthy",
            Kind::Backend => "Backend",
            Kind::Overloaded => "Overloaded",
            Kind::Validation | Kind::TooLarge | Kind::Malformed | Kind::MediaType => "Validation",
            Kind::Tokenizer => "Tokenizer",
            Kind::Empty => "Empty",
            Kind::NotFound | Kind::Method => "NotFound",
            Kind::Unauthorized | Kind::Forbidden => "Unauthorized",
            Kind::Slow | Kind::Timeout => "Timeout",
        }
    }

    /// The label of the failure in metrics and logs.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Unhealthy => "unhealthy",
            Kind::Backend => "inference",
            Kind::Overloaded => "overloaded",
            Kind::Validation => "validation",
            Kind::TooLarge => "too_large",
            Kind::Tokenizer => "tokenization",
            Kind::Empty => "empty",
            Kind::Malformed | Kind::MediaType => "malformed",
            Kind::NotFound | Kind::Method => "not_found",
            Kind::Unauthorized | Kind::Forbidden => "unauthorized",
            Kind::Slow | Kind::Timeout => "timeout",
        }
    }
}

/// A refusal: what a handler returns instead of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }

    /// A field that makes no sense.
    pub(crate) fn validation(message: impl Into<String>) -> Refusal {
        Refusal::new(Kind::Validation, message)
    }

    /// The model cannot do this, or failed at it.
    pub(crate) fn backend(message: impl Into<String>) -> Refusal {
        Refusal::new(Kind::Backend, message)
    }

    /// Too much is waiting already.
    pub(crate) fn overloaded() -> Refusal {
        Refusal::new(Kind::Overloaded, "Model is overloaded")
    }

    fn response(self, body: Value) -> Response {
        let mut response = (self.kind.status(), json_body(&body)).into_response();
        let headers = response.headers_mut();
        if self.kind == Kind::Overloaded || self.kind == Kind::Unhealthy {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.kind == Kind::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// As text-embeddings-inference says it; other APIs put it into their own words with [`restate`].
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"error": self.message, "error_type": self.kind.name()});
        self.response(body)
    }
}

/// Puts a refusal into another API's words; any other response stays as it is.
pub(crate) fn restate(response: Response, words: impl Fn(&Refusal) -> Value) -> Response {
    match response.extensions().get::<Refusal>().cloned() {
        Some(refusal) => {
            let body = words(&refusal);
            refusal.response(body)
        }
        None => response,
    }
}

/// OpenAI's error object.
pub(crate) fn openai(refusal: &Refusal) -> Value {
    let kind = match refusal.kind {
        Kind::Unauthorized | Kind::Forbidden => "authentication_error",
        Kind::Overloaded => "rate_limit_error",
        Kind::Unhealthy | Kind::Backend | Kind::Timeout => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": refusal.message, "type": kind, "param": null, "code": refusal.kind.label()}})
}

/// A body of JSON.
pub(crate) fn json_body(value: &impl serde::Serialize) -> Response {
    // Every key is a string and numbers that are none become null: this cannot fail.
    let text = serde_json::to_vec(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
