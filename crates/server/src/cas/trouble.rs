//! Why a request to the cache fails, in the words of gRPC and of HTTP.

use super::access::CacheAccess;
use super::names::BadName;
use crate::api_error::ApiError;
use crate::auth::Denied;
use crate::listen::body::BodyError;
use crate::unavailable::Unavailable;
use std::io;
use tonic::{Code, Status};
use windlass_api::ErrorCode;
use windlass_cas::{CasError, Digest};
use windlass_core::resources::Bytes;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheTrouble {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("this token may {}, and this needs one that may {}", has.as_str(), takes.as_str())]
    Access { has: CacheAccess, takes: CacheAccess },
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("{0}")]
    Bad(String),
    #[error("the cache does not have the blob {0}")]
    NoBlob(Digest),
    #[error("the cache has nothing under this name")]
    Nothing,
    #[error("this path of the cache does not know that method")]
    Method,
    #[error("the blob has {size} bytes, and {offset} is not an offset in it")]
    Range { offset: i64, size: u64 },
    #[error("more than {0} bytes were sent, and no more are taken here")]
    TooLarge(u64),
    #[error("'{user}' has uploaded {} of {} today", Bytes(*used), Bytes(*of))]
    Quota { user: String, used: u64, of: u64 },
    #[error("too many requests to the cache are under way; try again")]
    Busy,
    #[error("the client does not read what it asked for")]
    Unread,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Store(#[from] CasError),
    #[error("a file of the cache cannot be read")]
    Io(#[from] io::Error),
    #[error("a part of the server failed; its log says more")]
    Defect,
    #[error("this server has no remote cache; an administrator sets cas.enabled = true")]
    Off,
    #[error(
        "{0} is not an attempt that is booked on this worker, so its files are not given; end what asks for them"
    )]
    NotBooked(String),
    #[error(transparent)]
    Away(#[from] Unavailable),
}

impl CacheTrouble {
    pub fn code(&self) -> Code {
        match self {
            CacheTrouble::Denied(why) if why.code() == ErrorCode::Unauthorized => Code::Unauthenticated,
            CacheTrouble::Denied(_) | CacheTrouble::Access { .. } | CacheTrouble::NotBooked(_) => {
                Code::PermissionDenied
            }
            CacheTrouble::Name(_) | CacheTrouble::Bad(_) | CacheTrouble::TooLarge(_) => Code::InvalidArgument,
            CacheTrouble::NoBlob(_) | CacheTrouble::Nothing => Code::NotFound,
            CacheTrouble::Method | CacheTrouble::Off => Code::Unimplemented,
            CacheTrouble::Range { .. } => Code::OutOfRange,
            CacheTrouble::Quota { .. } => Code::ResourceExhausted,
            CacheTrouble::Busy
            | CacheTrouble::Unread
            | CacheTrouble::Away(_)
            | CacheTrouble::Body(BodyError::GaveWay) => Code::Unavailable,
            CacheTrouble::Body(BodyError::Slow) => Code::DeadlineExceeded,
            CacheTrouble::Body(BodyError::Broken(_)) => Code::Cancelled,
            CacheTrouble::Store(error) => code_of_store(error),
            CacheTrouble::Io(_) | CacheTrouble::Defect => Code::Internal,
        }
    }

    /// True of what an administrator has to see to.
    pub fn is_own(&self) -> bool {
        self.code() == Code::Internal
    }

    pub fn into_status(self) -> Status {
        Status::new(self.code(), self.to_string())
    }

    pub fn into_api_error(self) -> ApiError {
        let error = ApiError::new(self.error_code(), self.to_string());
        match self {
            CacheTrouble::Denied(why) => error.hint(why.hint()),
            CacheTrouble::Access { takes: CacheAccess::Write, .. } => error.hint(
                "an administrator makes such a token by 'windlass token create --role user --cache write'",
            ),
            CacheTrouble::Access { .. } => {
                error.hint("an administrator makes one by 'windlass token create'")
            }
            CacheTrouble::Quota { .. } => {
                error.hint("try again tomorrow; an administrator sets cas.upload_bytes_per_day")
            }
            _ => error,
        }
    }

    fn error_code(&self) -> ErrorCode {
        if let CacheTrouble::TooLarge(_) = self {
            return ErrorCode::TooLarge;
        }
        match self.code() {
            Code::Unauthenticated => ErrorCode::Unauthorized,
            Code::PermissionDenied => ErrorCode::Forbidden,
            Code::NotFound => ErrorCode::NotFound,
            Code::Unimplemented => ErrorCode::MethodNotAllowed,
            Code::InvalidArgument | Code::OutOfRange | Code::DeadlineExceeded | Code::Cancelled => {
                ErrorCode::BadRequest
            }
            Code::ResourceExhausted | Code::Unavailable => ErrorCode::Unavailable,
            _ => ErrorCode::Internal,
        }
    }
}

fn code_of_store(error: &CasError) -> Code {
    match error {
        CasError::Full { .. } | CasError::DiskFull(_) | CasError::TooManyPins { .. } => {
            Code::ResourceExhausted
        }
        CasError::TooLarge { .. } | CasError::LongName { .. } | CasError::Mismatch { .. } => {
            Code::InvalidArgument
        }
        CasError::Busy { .. } | CasError::Lost(_) => Code::Unavailable,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hears_what_to_do_in_its_own_words() {
        let said = |trouble: CacheTrouble| {
            let shown = format!("{trouble}");
            let api = trouble.error_code();
            let status = trouble.into_status();
            assert_eq!(status.message(), shown);
            (status.code(), api.status())
        };
        assert_eq!(said(CacheTrouble::Denied(Denied::Missing)), (Code::Unauthenticated, 401));
        let access = CacheTrouble::Access { has: CacheAccess::Read, takes: CacheAccess::Write };
        assert_eq!(said(access), (Code::PermissionDenied, 403));
        assert_eq!(said(CacheTrouble::Nothing), (Code::NotFound, 404));
        assert_eq!(said(CacheTrouble::TooLarge(5)), (Code::InvalidArgument, 413));
        let quota = CacheTrouble::Quota { user: "ann".to_owned(), used: 5, of: 5 };
        assert_eq!(said(quota), (Code::ResourceExhausted, 503));
        let other = CasError::Mismatch { expected: Digest::EMPTY, bytes: 1 };
        assert_eq!(said(other.into()), (Code::InvalidArgument, 400));
        assert_eq!(said(CacheTrouble::Defect), (Code::Internal, 500));
    }
}
