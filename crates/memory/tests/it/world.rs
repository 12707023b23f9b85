//! A memory in a temporary store, of a temporary project: on SQLite, and on the PostgreSQL that the environment names.

use countersign_gateway::standalone::StandaloneGateway;
use countersign_memory::{Memory, server};
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::memory::MemoryActor;
use countersign_store::{ConnectOptions, LedgerFilter, LedgerRow, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs each function on both databases. The PostgreSQL half says so when it is left out.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::world::On::Sqlite).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if std::env::var_os("COUNTERSIGN_TEST_POSTGRES").is_none() {
                    println!("skipped: COUNTERSIGN_TEST_POSTGRES names no server");
                    return;
                }
                super::$name($crate::world::On::Postgres).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// Which database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Sqlite,
    Postgres,
}

pub(crate) struct World {
    pub(crate) room: TempDir,
    pub(crate) memory: Memory,
    _schema: Option<Schema>,
}

/// A schema of its own, gone at the end of the test.
struct Schema {
    server: String,
    name: String,
}

impl Schema {
    async fn make(room: &TempDir) -> Self {
        let server = std::env::var("COUNTERSIGN_TEST_POSTGRES").unwrap();
        let folder = room.path().file_name().unwrap().to_str().unwrap();
        let letters: String = folder.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("m_{}_{}", std::process::id(), letters.to_lowercase());
        run_on(&server, &format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")).await;
        Self { server, name }
    }

    fn url(&self) -> String {
        let Self { server, name } = self;
        let join = if server.contains('?') { '&' } else { '?' };
        format!("{server}{join}options=-c%20search_path%3D{name}&application_name={name}")
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (server, sql) = (self.server.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
        // A runtime of its own: drop can't wait in the test's.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run_on(&server, &sql));
        })
        .join()
        .unwrap();
    }
}

async fn run_on(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    drop(client);
    driver.await.unwrap().unwrap();
}

/// Seconds after a fixed moment.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn agent() -> MemoryActor {
    MemoryActor {
        principal: "agent".into(),
        role: Role::Agent,
        session: None,
        source: Source::Mcp,
        named: None,
    }
}

pub(crate) fn person() -> MemoryActor {
    MemoryActor {
        principal: "ada".into(),
        role: Role::Human,
        session: None,
        source: Source::Mcp,
        named: None,
    }
}

impl World {
    pub(crate) async fn on(database: On) -> Self {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("project")).unwrap();
        let schema = match database {
            On::Sqlite => None,
            On::Postgres => Some(Schema::make(&room).await),
        };
        let url = match &schema {
            None => StoreUrl::file(room.path().join("store.db")),
            Some(schema) => schema.url().parse().unwrap(),
        };
        let options = ConnectOptions {
            now: Timestamp::UNIX_EPOCH,
            readers: 1,
            key_file: schema.as_ref().map(|_| room.path().join("store.key")),
            ..ConnectOptions::default()
        };
        let store = Store::connect(&url, options).await.unwrap_or_else(|fault| panic!("{}", fault.inside()));
        let memory = Memory::new(store, room.path().join("project"));
        Self { room, memory, _schema: schema }
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.room.path().join("project").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// The envelope of a call at a moment.
    pub(crate) async fn at(&self, now: Timestamp, who: &MemoryActor, tool: &str, arguments: Value) -> Value {
        let arguments = arguments.as_object().unwrap();
        self.memory.call(tool, arguments, who, now).await.unwrap().to_value()
    }

    /// The data of a call that goes well.
    #[track_caller]
    pub(crate) fn ok(&self, who: &MemoryActor, tool: &str, arguments: Value) -> impl Future<Output = Value> {
        let (memory, who, tool) = (self.memory.clone(), who.clone(), tool.to_owned());
        async move {
            let envelope = memory.call(&tool, arguments.as_object().unwrap(), &who, at(10)).await.unwrap();
            assert!(envelope.ok, "{tool}: {:?}", envelope.errors);
            Value::Object(envelope.data)
        }
    }

    /// Code and message of a call that is refused.
    pub(crate) async fn no(&self, who: &MemoryActor, tool: &str, arguments: Value) -> (String, String) {
        let value = self.at(at(10), who, tool, arguments).await;
        assert_eq!(value["ok"], false, "{value}");
        let error = &value["errors"][0];
        assert!(error["details"]["reason_code"].is_string() && error["details"]["next_actions"].is_array());
        (error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    }

    /// A server of its own, as `memory serve` opens one.
    pub(crate) async fn server(&self, role: Role) -> StandaloneGateway {
        server::open(self.memory.clone(), role, "line", Source::Mcp).await.unwrap()
    }

    pub(crate) async fn rows(&self, filter: LedgerFilter) -> Vec<LedgerRow> {
        self.memory.store().flush().await.unwrap();
        self.memory.store().activity(filter).await.unwrap().rows
    }
}

/// What a call of a server came to: its envelope, or the protocol's error message.
pub(crate) async fn said(server: &StandaloneGateway, tool: &str, arguments: Value) -> Result<Value, String> {
    match server.request("tools/call", &json!({"name": tool, "arguments": arguments})).await {
        Ok(result) => {
            let mut result: Value = serde_json::from_str(result.get()).unwrap();
            Ok(result["structuredContent"].take())
        }
        Err(error) => Err(error.message().to_string()),
    }
}
