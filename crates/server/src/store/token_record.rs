//! Records of tokens of the control API.

use jiff::Timestamp;
use tidegate_api::access::Role;

/// Version of the rows that this build writes and reads.
const VERSION: u32 = 1;

/// Token of the control API. Of its secret only the hash is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRecord {
    /// Name, unique over all tokens.
    pub name: String,
    /// SHA-256 of the secret. A secret has 256 random bits, so that it cannot be found by trying
    /// likely ones, which slow hashes with a salt protect passwords from.
    pub hash: [u8; 32],
    /// Role of requests with the token.
    pub role: Role,
    /// Time at which the token was added.
    pub created: Timestamp,
    /// Time from which the token is refused; `None` for never.
    pub expires: Option<Timestamp>,
    /// Time of a use, at most an hour before the last one.
    pub last_used: Option<Timestamp>,
}

/// Reason why a stored token is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {name:?} in the store cannot be used: {why}")]
pub struct TokenError {
    name: String,
    why: String,
}

/// Row of a token in a transaction.
type Row<'a> = (u32, &'a [u8], &'a str, i64, Option<i64>, Option<i64>);

impl TokenRecord {
    pub(super) fn to_row(&self) -> Row<'_> {
        (
            VERSION,
            &self.hash,
            self.role.name(),
            self.created.as_second(),
            self.expires.map(Timestamp::as_second),
            self.last_used.map(Timestamp::as_second),
        )
    }

    pub(super) fn from_row(name: &str, row: Row<'_>) -> Result<TokenRecord, TokenError> {
        let (version, hash, role, created, expires, last_used) = row;
        let unusable = |why: String| TokenError {
            name: name.to_owned(),
            why,
        };
        // A later version may restrict a token in a way that this build would not keep to.
        if version != VERSION {
            return Err(unusable(format!("its version is {version}, not {VERSION}")));
        }
        let time = |second: i64| {
            let time = Timestamp::from_second(second);
            time.map_err(|_| unusable(format!("{second} is no time")))
        };
        let known = Role::ALL.into_iter().find(|known| known.name() == role);
        let hash = hash.try_into();
        Ok(TokenRecord {
            name: name.to_owned(),
            hash: hash.map_err(|_| unusable("its hash is no SHA-256".to_owned()))?,
            role: known.ok_or_else(|| unusable(format!("there is no role {role:?}")))?,
            created: time(created)?,
            expires: expires.map(time).transpose()?,
            last_used: last_used.map(time).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_not_understood_is_no_token() {
        let token = TokenRecord {
            name: "ci".to_owned(),
            hash: [7; 32],
            role: Role::Operate,
            created: Timestamp::from_second(1_800_000_000).expect("a time"),
            expires: Timestamp::from_second(1_900_000_000).ok(),
            last_used: None,
        };
        let row = token.to_row();
        assert_eq!(TokenRecord::from_row("ci", row), Ok(token.clone()));
        for wrong in [
            (2, row.1, row.2, row.3, row.4, row.5),
            (1, &row.1[1..], row.2, row.3, row.4, row.5),
            (1, row.1, "root", row.3, row.4, row.5),
            (1, row.1, row.2, i64::MAX, row.4, row.5),
            // A time that cannot be read must not become a token that never expires.
            (1, row.1, row.2, row.3, Some(i64::MAX), row.5),
        ] {
            let error = TokenRecord::from_row("ci", wrong)
                .expect_err("wrong")
                .to_string();
            assert!(error.contains("token \"ci\" in the store"), "{error}");
        }
    }
}
