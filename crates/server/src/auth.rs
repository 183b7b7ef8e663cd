//! Authentication: the tokens, and the caller that a request's token names.
//!
//! A client that may open the unix socket is the administrator: the file's permissions are the check. On a socket for
//! all users of the machine, each is the user whose process it is. Where
//! authentication is on, every client over TCP shows a bearer token, `wl_ID_SECRET`. The store has the secret's hash.
//! This process keeps all hashes in memory, so that no request waits for the store.

mod rights;

use crate::caller::Right;
use crate::csrf::CrossSite;
use crate::local_users::{LocalClient, LocalUser};
use crate::random::{NoRandom, hash_of_secret};
use crate::token_end::TokenEnd;
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use parking_lot::RwLock;
use rights::check_rights;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use windlass_api::{CacheRight, CreateToken, CreatedToken, ErrorCode, Token};
use windlass_core::Time;
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_core::time::NS_PER_MS;
use windlass_core::worker::Origin;
use windlass_store::{Store, StoreError, TokenRecord, TokenWrite};

pub use crate::caller::{Access, Caller, Rights};
pub use crate::peer::{Entrance, Peer};
pub use crate::random::random;
pub use windlass_api::Role;

/// The beginning of the paths for workers, which the roles `worker` and `admin` may use.
pub const WORKER_PATHS: &str = "/windlass.worker.v1.";
/// The path of the health check, which needs no token.
pub const HEALTH_PATH: &str = "/healthz";

/// Tokens in force at a time.
const TOKENS_MAX: usize = 10_000;
/// Bytes of what is noted of a token.
const NOTE_BYTES_MAX: usize = 1000;
/// The longest life that a token may be given; longer is meant to be for ever.
const EXPIRES_MS_MAX: u64 = 100 * 365 * 86_400_000;
/// Random bytes of an id and of a secret.
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// Between two looks into the store for what another server changed there.
pub(crate) const REFRESH: Duration = Duration::from_secs(10);

/// True if the certificate was issued to a machine of that name.
pub fn certificate_names(certificate: &CertificateDer<'_>, worker: &str) -> bool {
    let (Ok(certificate), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(worker))
    else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

/// Why a request is not let in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum Denied {
    #[error("this server asks for a token, and the request has none")]
    Missing,
    #[error("malformed token")]
    Malformed,
    #[error("this token is not known here")]
    Unknown,
    #[error("this token has expired")]
    Expired,
    #[error("this token was revoked")]
    Revoked,
    #[error("the client certificate is not the one of the worker that this token speaks for")]
    Certificate,
    #[error(
        "a token is taken as a password only by the cache, where machines boot and where lists are looked at"
    )]
    Password,
    #[error("this user has too many connections open")]
    Connections,
    #[error("the user of this process has no name on this machine")]
    Nameless,
    #[error("this session has ended")]
    Session,
    #[error("this code is not valid: each signs in once, within a minute")]
    Code,
    #[error(transparent)]
    CrossSite(#[from] CrossSite),
    #[error("this token's role does not allow it")]
    Role,
    #[error(
        "this token's role does not allow it: it has the role {}, and this needs the role {}",
        has.as_str(),
        takes.as_str()
    )]
    RoleOf { has: Role, takes: Access },
    /// Of a caller whom the kernel made known, who has no token.
    #[error("user '{user}' has the role {} here, and this needs the role {}", has.as_str(), takes.as_str())]
    RoleOfUser { user: String, has: Role, takes: Access },
    /// The handler said why.
    #[error("the caller has no right to it")]
    Rights,
}

impl Denied {
    /// The denial of what is for callers of other roles.
    pub(crate) fn of_role(caller: &Caller, takes: Access) -> Denied {
        let has = caller.role;
        match caller.token {
            Some(_) => Denied::RoleOf { has, takes },
            None => Denied::RoleOfUser { user: caller.user.clone(), has, takes },
        }
    }

    /// The error code on the wire.
    pub fn code(&self) -> ErrorCode {
        match self {
            Denied::Certificate
            | Denied::Role
            | Denied::RoleOf { .. }
            | Denied::RoleOfUser { .. }
            | Denied::Rights
            | Denied::CrossSite(_) => ErrorCode::Forbidden,
            Denied::Connections => ErrorCode::Unavailable,
            _ => ErrorCode::Unauthorized,
        }
    }

    /// What the client or an administrator can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Denied::Certificate => "issue one with 'windlass ca issue DIR --worker NAME'",
            Denied::Password => "send it as 'Authorization: Bearer TOKEN'",
            Denied::Connections => "close some; an administrator sets connections.max",
            Denied::Nameless => "its user database does not have the user, or does not answer; try again",
            Denied::Role => "'windlass token list', asked by an administrator, shows the roles",
            Denied::RoleOf { .. } => {
                "ask an administrator to do it, or for a token of that role: 'windlass token create --role ROLE'"
            }
            Denied::RoleOfUser { .. } => {
                "ask an administrator to do it: root, or a member of the group that 'admins' of [machine] names"
            }
            Denied::Rights => "ask its user or an administrator",
            Denied::Session | Denied::Code => "sign in again: 'windlass board' opens the board, signed in",
            Denied::CrossSite(CrossSite::Host) => {
                "address the server as 127.0.0.1 or localhost with its port; for a reverse proxy set hosts of [board]"
            }
            Denied::CrossSite(_) => "a program shows a token instead: 'Authorization: Bearer TOKEN'",
            _ => {
                "an administrator makes one by 'windlass token create'; set WINDLASS_TOKEN_FILE or WINDLASS_TOKEN"
            }
        }
    }
}

/// Why a token is not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum TokenError {
    #[error("{0}")]
    Bad(String),
    #[error("there are {TOKENS_MAX} tokens in force; revoke some")]
    Full,
    #[error(transparent)]
    Random(#[from] NoRandom),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A token that this process alone knows and the store never has: it ends with the process.
pub struct OwnToken {
    id: String,
    secret: String,
}

impl OwnToken {
    /// Another one than all before.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn new() -> Result<OwnToken, NoRandom> {
        Ok(OwnToken { id: random::<ID_BYTES>()?, secret: random::<SECRET_BYTES>()? })
    }

    /// What goes after `Bearer`.
    pub fn bearer(&self) -> String {
        format!("wl_{}_{}", self.id, self.secret)
    }
}

/// All tokens, and the rule for requests without one.
pub struct Auth {
    store: Store,
    required: bool,
    /// The administrator's name, for requests without a token.
    user: String,
    tokens: RwLock<BTreeMap<String, TokenRecord>>,
    /// The id of the token that this process alone knows.
    own: OnceLock<String>,
}

impl Auth {
    /// Reads the tokens of the store. Requests without one are the administrator `user`'s: all
    /// requests, or only those over the unix socket if tokens are `required`.
    pub async fn load(store: &Store, required: bool, user: String) -> Result<Auth, StoreError> {
        let auth =
            Auth { store: store.clone(), required, user, tokens: RwLock::default(), own: OnceLock::new() };
        auth.refresh().await?;
        Ok(auth)
    }

    /// Reads what another server of the same store changed. What this one changed meanwhile stays.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let found = self.store.tokens().await?;
        let mut tokens = self.tokens.write();
        // Of those that ended, whatever the store has forgotten; one that was made this moment may not be found yet.
        let at = now();
        let known: BTreeSet<&String> = found.iter().map(|token| &token.id).collect();
        tokens.retain(|id, token| in_force(token, at) || known.contains(id));
        for token in found {
            let known = tokens.entry(token.id.clone()).or_insert_with(|| token.clone());
            known.revoked = known.revoked.or(token.revoked);
        }
        Ok(())
    }

    /// Reads what another server of the same store changed, and logs a failure. The next try is soon.
    pub(crate) async fn refresh_or_warn(&self) {
        if let Err(error) = self.refresh().await {
            tracing::warn!("cannot look for changes of tokens: {error}");
        }
    }

    /// The caller of a request. A token may come as a password only where the request takes one.
    pub fn caller(&self, peer: &Peer, headers: &HeaderMap, by_password: bool) -> Result<Caller, Denied> {
        match &peer.local {
            Some(LocalClient::Known(user)) => return Ok(caller_of_local(user)),
            Some(LocalClient::Nameless(_)) => return Err(Denied::Nameless),
            Some(LocalClient::TooMany(_)) => return Err(Denied::Connections),
            None => {}
        }
        if self.lets_in(peer) {
            return Ok(self.own_user());
        }
        let bearer = headers.get(header::AUTHORIZATION).ok_or(Denied::Missing)?;
        let shown = bearer.to_str().map_err(|_| Denied::Malformed)?;
        if !by_password && shown.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic ")) {
            return Err(Denied::Password);
        }
        let caller = self.known(shown, now())?;
        match (&peer.certificate, &caller.worker) {
            (Some(certificate), Some(worker)) if !certificate_names(certificate, worker) => {
                Err(Denied::Certificate)
            }
            _ => Ok(caller),
        }
    }

    /// True where nothing needs to be shown.
    pub(crate) fn lets_in(&self, peer: &Peer) -> bool {
        peer.address.is_none() || (!self.required && !peer.is_for_board())
    }

    /// The administrator, as whom requests without a token are let in.
    fn own_user(&self) -> Caller {
        Caller {
            user: self.user.clone(),
            role: Role::Admin,
            worker: None,
            token: None,
            rights: Rights::default(),
        }
    }

    /// The caller with a session's right; `None` if its token is not in force any more.
    pub(crate) fn of_right(&self, right: &Right) -> Option<Caller> {
        match right {
            Right::Token(id) => self.of_id(id),
            Right::Own => Some(self.own_user()),
            Right::Local(user) => Some(caller_of_local(user)),
        }
    }

    /// The caller of the token with this id; `None` if it is not in force.
    pub(crate) fn of_id(&self, id: &str) -> Option<Caller> {
        let (tokens, at) = (self.tokens.read(), now());
        tokens.get(id).filter(|token| in_force(token, at)).and_then(|token| caller_of(token).ok())
    }

    pub(crate) fn check_token(&self, token: &str) -> Result<Caller, Denied> {
        self.known(&format!("Bearer {token}"), now())
    }

    /// The caller of this token, if it is in force.
    pub fn of_token(&self, token: &str) -> Option<Caller> {
        self.check_token(token).ok()
    }

    /// True if there ever was a token of this user.
    pub fn knows_user(&self, user: &str) -> bool {
        let tokens = self.tokens.read();
        tokens.values().any(|token| token.user == user)
    }

    /// True of the token that this process alone knows.
    pub(crate) fn is_own(&self, id: &str) -> bool {
        self.own.get().is_some_and(|own| own == id)
    }

    /// True while the token of this id lets anybody in.
    pub fn is_in_force(&self, id: &str) -> bool {
        let (tokens, at) = (self.tokens.read(), now());
        tokens.get(id).is_some_and(|token| in_force(token, at))
    }

    /// When the token of this id ends; `None` if it does not.
    pub fn end_of(&self, id: &str) -> Option<TokenEnd> {
        self.tokens.read().get(id).and_then(TokenEnd::of)
    }

    /// The caller whose token an `Authorization` header shows.
    fn known(&self, header: &str, at: Time) -> Result<Caller, Denied> {
        let (mut scheme, token) = header.split_once(' ').ok_or(Denied::Malformed)?;
        let mut token = std::borrow::Cow::Borrowed(token);
        if scheme.eq_ignore_ascii_case("basic") {
            // What can show nothing else, such as a boot loader, shows it as a password.
            let plain = base64::engine::general_purpose::STANDARD.decode(&*token).ok();
            let plain = plain.and_then(|plain| String::from_utf8(plain).ok()).ok_or(Denied::Malformed)?;
            let (_, password) = plain.split_once(':').ok_or(Denied::Malformed)?;
            (scheme, token) = ("bearer", password.to_owned().into());
        }
        let (id, secret) =
            token.strip_prefix("wl_").and_then(|t| t.split_once('_')).ok_or(Denied::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer")
            || id.len() != 2 * ID_BYTES
            || secret.len() != 2 * SECRET_BYTES
        {
            return Err(Denied::Malformed);
        }
        let tokens = self.tokens.read();
        let token = tokens.get(id).ok_or(Denied::Unknown)?;
        if !bool::from(token.hash.ct_eq(&hash_of_secret(secret))) {
            return Err(Denied::Unknown);
        }
        if token.revoked.is_some() {
            return Err(Denied::Revoked);
        }
        if token.expires.is_some_and(|end| end <= at) {
            return Err(Denied::Expired);
        }
        caller_of(token)
    }

    /// All tokens that a request made, by id.
    pub fn tokens(&self) -> Vec<Token> {
        let tokens = self.tokens.read();
        tokens.values().filter(|token| self.own.get() != Some(&token.id)).filter_map(told).collect()
    }

    /// Makes a token and its secret, which is told this once.
    pub async fn create(&self, request: CreateToken, caller: &Caller) -> Result<CreatedToken, TokenError> {
        let at = now();
        let record = record_of(request, caller, at)?;
        let count = self.tokens.read().values().filter(|token| in_force(token, at)).count();
        if count >= TOKENS_MAX {
            return Err(TokenError::Full);
        }
        // Ids are random: another that is taken already is a matter of years.
        loop {
            let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
            let record = TokenRecord { hash: hash_of_secret(&secret), id: id.clone(), ..record.clone() };
            if !self.store.write_token(TokenWrite::Create(Box::new(record.clone()))).await? {
                continue;
            }
            let bearer = format!("wl_{id}_{secret}");
            let token = told(&record).ok_or_else(|| TokenError::Bad("no such role".to_owned()))?;
            self.tokens.write().insert(id, record);
            return Ok(CreatedToken { bearer, token });
        }
    }

    /// Lets in with this token, as an administrator.
    pub fn take_own(&self, own: &OwnToken) {
        let record = TokenRecord {
            id: own.id.clone(),
            hash: hash_of_secret(&own.secret),
            role: Role::Admin.as_str().to_owned(),
            user: self.user.clone(),
            worker: None,
            serves: BTreeSet::new(),
            for_users: BTreeSet::new(),
            queue: None,
            cache: None,
            note: String::new(),
            created: now(),
            expires: None,
            revoked: None,
        };
        _ = self.own.set(own.id.clone());
        self.tokens.write().insert(own.id.clone(), record);
    }

    /// Ends a token, at once; `None` if there is none of that id.
    pub async fn revoke(&self, id: &str) -> Result<Option<Token>, StoreError> {
        let at = now();
        self.store.write_token(TokenWrite::Revoke(id.to_owned(), at)).await?;
        let mut tokens = self.tokens.write();
        let Some(token) = tokens.get_mut(id) else { return Ok(None) };
        token.revoked = token.revoked.or(Some(at));
        Ok(told(token))
    }
}

fn in_force(token: &TokenRecord, at: Time) -> bool {
    token.revoked.is_none() && token.expires.is_none_or(|end| end > at)
}

fn caller_of(token: &TokenRecord) -> Result<Caller, Denied> {
    Ok(Caller {
        user: token.user.clone(),
        // A later version may have written a role that this one does not know.
        role: Role::parse(&token.role).ok_or(Denied::Role)?,
        worker: token.worker.clone(),
        token: Some(token.id.clone()),
        rights: Rights {
            serves: token.serves.iter().cloned().collect(),
            for_users: token.for_users.iter().cloned().collect(),
            queue: token.queue.clone(),
            // What a later version may have written gives nothing.
            cache: token.cache.as_deref().and_then(CacheRight::parse),
        },
    })
}

/// A user of this machine as a caller. A token that they show besides does not count.
fn caller_of_local(user: &LocalUser) -> Caller {
    let role = if user.is_admin { Role::Admin } else { Role::User };
    Caller { user: user.name.clone(), role, worker: None, token: None, rights: Rights::default() }
}

/// The record of a new token, without id and secret.
fn record_of(request: CreateToken, caller: &Caller, at: Time) -> Result<TokenRecord, TokenError> {
    let bad = |why: &str| Err(TokenError::Bad(why.to_owned()));
    check_rights(&request).map_err(TokenError::Bad)?;
    let CreateToken { role, user, worker, serves, for_users, queue, cache, expires_in_ms, note } = request;
    let user = match (role, user, &worker) {
        (Role::Worker, None, Some(worker)) => worker.clone(),
        (Role::Worker, _, None) => return bad("a token of the role worker needs the worker's name"),
        (Role::Admin | Role::Submitter | Role::User | Role::Viewer, _, Some(_)) => {
            return bad("only a token of the role worker speaks for a worker");
        }
        (Role::User, None, None) => return bad("a token of the role user needs the user's name"),
        (_, user, _) => user.unwrap_or_else(|| caller.user.clone()),
    };
    let is_name = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    if ![Some(user.as_str()), worker.as_deref(), queue.as_deref()].into_iter().flatten().all(is_name) {
        return bad("a name has from 1 to 255 bytes and no control characters");
    }
    // Hosts of Compass CI have tokens for their own names, without their origin.
    if let Some(worker) = &worker
        && (!Origin::Compass.may_name(worker) || worker.contains([':', '[', ']']))
    {
        return bad("a worker's name has letters, digits, dots, dashes, underscores and pluses");
    }
    if note.len() > NOTE_BYTES_MAX {
        return Err(TokenError::Bad(format!("a note has at most {NOTE_BYTES_MAX} bytes")));
    }
    if expires_in_ms.is_some_and(|ms| ms == 0 || ms > EXPIRES_MS_MAX) {
        return bad("a token ends after a millisecond at least and a hundred years at most");
    }
    Ok(TokenRecord {
        id: String::new(),
        hash: [0; 32],
        role: role.as_str().to_owned(),
        user,
        worker,
        serves: serves.into_iter().collect(),
        for_users: for_users.into_iter().collect(),
        queue,
        cache: cache.map(|right| right.as_str().to_owned()),
        note,
        created: at,
        expires: expires_in_ms.map(|ms| Time(at.0.saturating_add(ms.saturating_mul(NS_PER_MS)))),
        revoked: None,
    })
}

fn told(record: &TokenRecord) -> Option<Token> {
    Some(Token {
        id: record.id.clone(),
        role: Role::parse(&record.role)?,
        user: record.user.clone(),
        worker: record.worker.clone(),
        serves: record.serves.iter().cloned().collect(),
        for_users: record.for_users.iter().cloned().collect(),
        queue: record.queue.clone(),
        cache: record.cache.as_deref().and_then(CacheRight::parse),
        note: record.note.clone(),
        created_ms: record.created.as_ms(),
        expires_ms: record.expires.map(Time::as_ms),
        revoked_ms: record.revoked.map(Time::as_ms),
    })
}

/// The wall clock, by which tokens end.
pub(crate) fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::NAME_PATTERNS_MAX;

    fn caller(role: Role) -> Caller {
        let rights = Rights {
            for_users: vec!["film-*".to_owned()],
            queue: Some("opencue".to_owned()),
            ..Rights::default()
        };
        let rights = Some(rights).filter(|_| role == Role::Submitter).unwrap_or_default();
        Caller { user: "ann".to_owned(), role, worker: None, token: None, rights }
    }

    fn over_tcp(auth: &Auth, bearer: &str) -> Result<Caller, Denied> {
        let peer = Peer { address: Some(([10, 0, 0, 9], 5).into()), ..Peer::LOCAL };
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, bearer.parse().unwrap());
        auth.caller(&peer, &headers, false)
    }

    fn ask(role: Role) -> CreateToken {
        let user = Some("ann".to_owned()).filter(|_| role != Role::Worker);
        let worker = Some("box".to_owned()).filter(|_| role == Role::Worker);
        let Rights { for_users, queue, .. } = caller(role).rights;
        CreateToken { user, worker, for_users, queue, ..CreateToken::of(role) }
    }

    #[tokio::test]
    async fn a_token_lets_in_until_it_is_revoked() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let made = auth.create(ask(Role::User), &caller(Role::Admin)).await.unwrap();
        let shown = format!("Bearer {}", made.bearer);
        let known = over_tcp(&auth, &shown).unwrap();
        assert_eq!((known.user.as_str(), known.role), ("ann", Role::User));
        assert_eq!(known.token.as_ref(), Some(&made.token.id));
        // Another process on the same store knows it too.
        let other = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        assert_eq!(over_tcp(&other, &shown), Ok(known));
        auth.revoke(&made.token.id).await.unwrap().unwrap();
        assert_eq!(over_tcp(&auth, &shown), Err(Denied::Revoked));
        other.refresh().await.unwrap();
        assert_eq!(over_tcp(&other, &shown), Err(Denied::Revoked));
        assert!(auth.revoke("none").await.unwrap().is_none());
        // Only this process has its own token, and no store.
        let own_token = OwnToken::new().unwrap();
        auth.take_own(&own_token);
        let own = format!("Bearer {}", own_token.bearer());
        assert!(auth.is_own(own.split('_').nth(1).unwrap()) && !auth.is_own(&made.token.id));
        auth.refresh().await.unwrap();
        assert_eq!(over_tcp(&auth, &own).unwrap().role, Role::Admin);
        other.refresh().await.unwrap();
        assert_eq!(over_tcp(&other, &own), Err(Denied::Unknown));
    }

    #[tokio::test]
    async fn nobody_is_trusted_at_the_board_s_own_port() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, false, "root".to_owned()).await.unwrap();
        let at = |for_board| {
            let entrance = Entrance { address: ([127, 0, 0, 1], 7).into(), is_tls: false, for_board };
            Peer { address: Some(([127, 0, 0, 1], 5).into()), entrance: Some(entrance), ..Peer::LOCAL }
        };
        assert_eq!(auth.caller(&at(false), &HeaderMap::new(), false).unwrap().role, Role::Admin);
        assert_eq!(auth.caller(&at(true), &HeaderMap::new(), false), Err(Denied::Missing));
    }

    #[tokio::test]
    async fn users_of_the_machine_are_who_the_kernel_says_whatever_they_show() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let made = auth.create(ask(Role::Admin), &caller(Role::Admin)).await.unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {}", made.bearer).parse().unwrap());
        let asks = |client| auth.caller(&Peer { local: Some(client), ..Peer::LOCAL }, &headers, false);
        let ann = |is_admin| LocalUser { uid: 1000, name: "ann".to_owned(), is_admin };
        for (is_admin, role) in [(false, Role::User), (true, Role::Admin)] {
            let known = asks(LocalClient::Known(ann(is_admin))).unwrap();
            assert_eq!((known.user.as_str(), known.role, known.token), ("ann", role, None));
            assert_eq!(auth.of_right(&Right::Local(ann(is_admin))).unwrap().role, role);
        }
        let known = asks(LocalClient::Known(ann(false))).unwrap();
        let denied = Denied::of_role(&known, Access::Admin);
        assert_eq!(denied.to_string(), "user 'ann' has the role user here, and this needs the role admin");
        assert!(denied.code() == ErrorCode::Forbidden && !denied.hint().contains("token"), "{denied:?}");
        assert_eq!(asks(LocalClient::Nameless(7)), Err(Denied::Nameless));
        assert_eq!(asks(LocalClient::TooMany(7)), Err(Denied::Connections));
    }

    #[tokio::test]
    async fn a_session_s_right_ends_with_its_token() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let made = auth.create(ask(Role::User), &caller(Role::Admin)).await.unwrap();
        let right = Right::Token(made.token.id.clone());
        let acts = auth.of_right(&right).unwrap();
        assert_eq!(
            (acts.user.as_str(), acts.role, acts.token.as_ref()),
            ("ann", Role::User, Some(&made.token.id))
        );
        auth.revoke(&made.token.id).await.unwrap();
        assert_eq!(auth.of_right(&right), None);
        assert_eq!(auth.of_right(&Right::Token("none".to_owned())), None);
        assert_eq!(auth.of_right(&Right::Own).unwrap().role, Role::Admin);
    }

    #[tokio::test]
    async fn forged_tokens_are_told_from_old_ones() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let request = CreateToken { expires_in_ms: Some(1), ..ask(Role::Admin) };
        let made = auth.create(request, &caller(Role::Admin)).await.unwrap();
        let shown = format!("Bearer {}", made.bearer);
        let end = Time((made.token.expires_ms.unwrap() + 1) * NS_PER_MS);
        assert_eq!(auth.known(&shown, end), Err(Denied::Expired));
        let last = if shown.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{last}", &shown[..shown.len() - 1]);
        assert_eq!(over_tcp(&auth, &forged), Err(Denied::Unknown));
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("ann:{}", made.bearer));
        assert_eq!(over_tcp(&auth, &format!("Basic {basic}")), Err(Denied::Password));
        for bad in ["", "Bearer", "Bearer wl_", "Bearer wl_a_b", &shown[..shown.len() - 1]] {
            assert_eq!(over_tcp(&auth, bad), Err(Denied::Malformed), "{bad}");
        }
        let peer = Peer { address: Some(([127, 0, 0, 1], 5).into()), ..Peer::LOCAL };
        assert_eq!(auth.caller(&peer, &HeaderMap::new(), false), Err(Denied::Missing));
        assert_eq!(auth.caller(&Peer::LOCAL, &HeaderMap::new(), false).unwrap().role, Role::Admin);
    }

    #[tokio::test]
    async fn a_submitter_acts_on_jobs_of_its_users_in_its_queue_alone() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let made = auth.create(ask(Role::Submitter), &caller(Role::Admin)).await.unwrap();
        let shown = format!("Bearer {}", made.bearer);
        // Another process on the same store knows the rights, too.
        let other = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        for auth in [&auth, &other] {
            let known = over_tcp(auth, &shown).unwrap();
            let jobs = [("film-ann", "opencue"), ("film-ann", "default"), ("ann", "opencue"), ("ann", "ann")];
            assert_eq!(jobs.map(|(user, queue)| known.may_act_on(user, queue)), [true, false, false, false]);
            assert!(!known.may_act_for("film-ann") && !known.may_act_for("ann"));
        }
        let user = Caller { rights: caller(Role::Submitter).rights, ..caller(Role::User) };
        assert!(user.may_act_on("ann", "any") && !user.may_act_on("film-ann", "opencue"));
    }

    #[tokio::test]
    async fn tokens_that_make_no_sense_are_not_made() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let bad = [
            CreateToken { user: None, ..ask(Role::User) },
            CreateToken { worker: None, ..ask(Role::Worker) },
            CreateToken { worker: Some("box".to_owned()), ..ask(Role::Viewer) },
            CreateToken { user: Some("a\nb".to_owned()), ..ask(Role::User) },
            CreateToken { expires_in_ms: Some(0), ..ask(Role::Admin) },
            CreateToken { note: "x".repeat(NOTE_BYTES_MAX + 1), ..ask(Role::Admin) },
            CreateToken { serves: vec!["nix".to_owned()], ..ask(Role::User) },
            CreateToken { serves: vec!["nix".to_owned()], ..ask(Role::Submitter) },
            CreateToken { serves: vec!["compass".to_owned()], ..ask(Role::Worker) },
            CreateToken { worker: Some("compass:box".to_owned()), ..ask(Role::Worker) },
            CreateToken { for_users: vec!["*".to_owned()], ..ask(Role::User) },
            CreateToken { queue: Some("opencue".to_owned()), ..ask(Role::Admin) },
            CreateToken { for_users: Vec::new(), ..ask(Role::Submitter) },
            CreateToken { for_users: vec!["a b".to_owned()], ..ask(Role::Submitter) },
            CreateToken { for_users: vec!["*".to_owned(); NAME_PATTERNS_MAX + 1], ..ask(Role::Submitter) },
            CreateToken { queue: None, ..ask(Role::Submitter) },
            CreateToken { queue: Some(String::new()), ..ask(Role::Submitter) },
            CreateToken { worker: Some("box".to_owned()), ..ask(Role::Submitter) },
            CreateToken { cache: Some(CacheRight::Write), ..ask(Role::Viewer) },
            CreateToken { cache: Some(CacheRight::Read), ..ask(Role::Worker) },
            CreateToken { cache: Some(CacheRight::Read), ..ask(Role::Admin) },
        ];
        for request in bad {
            let made = auth.create(request.clone(), &caller(Role::Admin)).await;
            assert!(matches!(made, Err(TokenError::Bad(_))), "{request:?}");
        }
        let worker = auth.create(ask(Role::Worker), &caller(Role::Admin)).await.unwrap();
        assert_eq!((worker.token.user.as_str(), worker.token.worker.as_deref()), ("box", Some("box")));
        assert!(!format!("{worker:?}").contains(&worker.bearer));
        assert!(over_tcp(&auth, &format!("Bearer {}", worker.bearer)).unwrap().may_serve().is_empty());
        let builder = CreateToken { serves: vec!["nix".to_owned()], ..ask(Role::Worker) };
        let builder = auth.create(builder, &caller(Role::Admin)).await.unwrap();
        assert_eq!(over_tcp(&auth, &format!("Bearer {}", builder.bearer)).unwrap().may_serve(), ["nix"]);
        for (role, right) in [(Role::User, CacheRight::Write), (Role::Viewer, CacheRight::Read)] {
            let made =
                auth.create(CreateToken { cache: Some(right), ..ask(role) }, &caller(Role::Admin)).await;
            let made = made.unwrap();
            assert_eq!(made.token.cache, Some(right));
            let known = over_tcp(&auth, &format!("Bearer {}", made.bearer)).unwrap();
            assert_eq!(known.rights.cache, Some(right));
        }
    }
}
