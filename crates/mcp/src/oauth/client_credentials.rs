//! Signs in without a person (client credentials), with a secret or with an assertion signed by a private key (RFC 7523). The key never
//! leaves this process.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use super::{
    AuthorizationServer, ClientAuth, ClientRegistration, OauthFault, OauthHttpClient, OauthTokens, attempt,
    tokens,
};

/// How long an assertion is valid, in seconds.
const LIFE: u64 = 60;

pub struct MachineClient {
    client_id: String,
    proof: MachineCredential,
}

enum MachineCredential {
    Secret(String),
    Key(Box<SigningKey>),
}

enum SigningKey {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl std::fmt::Debug for MachineClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineClient").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl MachineClient {
    pub fn with_secret(client_id: String, secret: String) -> Self {
        Self { client_id, proof: MachineCredential::Secret(secret) }
    }

    /// Signs with a private key in PEM: P-256 (ES256) or RSA (RS256).
    pub fn with_key(client_id: String, pem: &str) -> Result<Self, OauthFault> {
        let here = |why: &str| OauthFault::Here(why.to_owned());
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| here("the private key is no PEM that can be read"))?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => pkcs8(key),
            PrivateKeyDer::Pkcs1(key) => {
                RsaKeyPair::from_der(key.secret_pkcs1_der()).ok().map(SigningKey::Rsa)
            }
            // A SEC1 key has to be wrapped in PKCS#8 first.
            PrivateKeyDer::Sec1(_) | _ => None,
        };
        let key = key.ok_or_else(|| {
            here("the private key must be P-256 or RSA (2048 bits or more) in PKCS#8: openssl pkcs8 -topk8 -nocrypt")
        })?;
        Ok(Self { client_id, proof: MachineCredential::Key(Box::new(key)) })
    }

    pub async fn sign_in(
        &self,
        web: &OauthHttpClient,
        server: &AuthorizationServer,
        scope: Option<&str>,
    ) -> Result<OauthTokens, OauthFault> {
        let mut pairs = vec![("grant_type", "client_credentials"), ("resource", server.resource.as_str())];
        pairs.extend(scope.map(|scope| ("scope", scope)));
        match &self.proof {
            MachineCredential::Secret(secret) => {
                let client = ClientRegistration::known(self.client_id.clone(), Some(secret.clone()), server);
                tokens::ask(web, server, &client, &pairs).await
            }
            MachineCredential::Key(key) => {
                let assertion = assertion(key, &self.client_id, &server.issuer)?;
                pairs.push((
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                ));
                pairs.push(("client_assertion", &assertion));
                let client = ClientRegistration {
                    client_id: self.client_id.clone(),
                    client_secret: None,
                    auth: ClientAuth::None,
                };
                tokens::ask(web, server, &client, &pairs).await
            }
        }
    }
}

fn pkcs8(key: &PrivatePkcs8KeyDer<'_>) -> Option<SigningKey> {
    let der = key.secret_pkcs8_der();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())
        .map(SigningKey::Ec)
        .or_else(|_| RsaKeyPair::from_pkcs8(der).map(SigningKey::Rsa))
        .ok()
}

/// The assertion: for this server alone, for a minute, with a unique id.
fn assertion(key: &SigningKey, client_id: &str, issuer: &str) -> Result<String, OauthFault> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let algorithm = match key {
        SigningKey::Ec(_) => "ES256",
        SigningKey::Rsa(_) => "RS256",
    };
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "iat": now,
        "exp": now.saturating_add(LIFE),
        "jti": attempt::random()?,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": algorithm, "typ": "JWT"})), part(&claims));
    let signature = sign(key, signed.as_bytes())
        .ok_or_else(|| OauthFault::Here("the private key can't sign".to_owned()))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn sign(key: &SigningKey, text: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    match key {
        SigningKey::Ec(key) => Some(key.sign(&random, text).ok()?.as_ref().to_vec()),
        SigningKey::Rsa(key) => {
            let mut signature = vec![0; key.public().modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).ok()?;
            Some(signature)
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    fn pem(der: &[u8], label: &str) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    #[test]
    fn a_statement_is_signed_for_one_guard_and_a_minute() {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        let machine = MachineClient::with_key("robot".into(), &pem(made.as_ref(), "PRIVATE KEY")).unwrap();
        let MachineCredential::Key(key) = &machine.proof else { panic!("a key was given") };
        let signed = assertion(key, "robot", "https://as.example").unwrap();
        let (signed, signature) = signed.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref().to_vec());
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("robot"), &json!("robot")));
        assert_eq!(claims["aud"], "https://as.example");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), LIFE);
        assert_ne!(signed, assertion(key, "robot", "https://as.example").unwrap(), "each holds once");
        assert!(!format!("{machine:?}").contains("PRIVATE"));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for (text, expect) in [
            ("", "no PEM"),
            ("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n", "no PEM"),
            (&pem(b"nonsense", "PRIVATE KEY"), "must be P-256 or RSA"),
            (&pem(b"nonsense", "EC PRIVATE KEY"), "openssl pkcs8"),
        ] {
            let why = MachineClient::with_key("robot".into(), text).unwrap_err().to_string();
            assert!(why.contains(expect), "{why}");
        }
    }
}
