//! The tables and the data as delivered: a workshop that builds bicycles. Invented, and the same every time.

use rusqlite::{Connection, params};

use crate::OrderDeskError;

const TABLES: &str = "
CREATE TABLE parties (name TEXT PRIMARY KEY, kind TEXT NOT NULL, city TEXT NOT NULL) STRICT;
CREATE TABLE items (
  sku TEXT PRIMARY KEY, name TEXT NOT NULL, unit TEXT NOT NULL, price INTEGER NOT NULL,
  stock INTEGER NOT NULL, bin TEXT NOT NULL, capacity INTEGER NOT NULL, reorder_point INTEGER NOT NULL,
  CONSTRAINT stock_is_there CHECK (stock >= 0),
  CONSTRAINT bin_is_large_enough CHECK (stock <= capacity)
) STRICT;
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, party TEXT NOT NULL REFERENCES parties (name),
  status TEXT NOT NULL, due TEXT, note TEXT
) STRICT;
CREATE TABLE lines (
  order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE, sku TEXT NOT NULL REFERENCES items (sku),
  quantity INTEGER NOT NULL CHECK (quantity > 0), price INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
  PRIMARY KEY (order_id, sku)
) STRICT;
CREATE TABLE adjustments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, sku TEXT NOT NULL REFERENCES items (sku), quantity INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE TABLE stock_cache (sku TEXT PRIMARY KEY, stock INTEGER NOT NULL) STRICT;
";

const PARTIES: [(&str, &str, &str); 7] = [
    ("Brightspoke GmbH", "supplier", "Kassel"),
    ("Alder & Sons Tubing", "supplier", "Sheffield"),
    ("Taiko Components", "supplier", "Sakai"),
    ("Nordlys Rubber AS", "supplier", "Drammen"),
    ("City Courier Co-op", "customer", "Ghent"),
    ("Harbour Rentals", "customer", "Rostock"),
    ("Veloteca Malasaña", "customer", "Madrid"),
];

type SeedItemRow = (&'static str, &'static str, &'static str, i64, i64, &'static str, i64, i64);

const ITEMS: [SeedItemRow; 22] = [
    ("TUBE-4130-28", "Chromoly tube 28.6 mm", "m", 1_480, 212, "A-01", 600, 150),
    ("SPOKE-262", "Stainless spoke 262 mm", "pc", 38, 4_150, "B-02", 9_000, 2_500),
    ("HUB-DYN-36", "Dynamo hub, 36 holes", "pc", 6_250, 34, "B-04", 120, 40),
    ("RIM-622-36", "Alloy rim 622, 36 holes", "pc", 2_190, 88, "B-05", 200, 60),
    ("TYRE-700C", "Tyre 700×35C, reflective", "pc", 1_675, 380, "C-01", 400, 120),
    ("CHAIN-8S", "Chain, 8 speed", "pc", 1_120, 64, "C-03", 300, 80),
    ("BRAKE-HS", "Hydraulic rim brake set", "set", 5_490, 27, "C-04", 90, 30),
    ("SADDLE-W", "Leather saddle, wide", "pc", 7_800, 19, "D-01", 60, 15),
    ("CRANK-170", "Crank set 170 mm", "set", 4_350, 41, "C-05", 120, 30),
    ("PEDAL-FLAT", "Flat pedals, pair", "pair", 1_890, 73, "C-06", 200, 50),
    ("GRIP-CORK", "Cork grips, pair", "pair", 990, 156, "C-07", 300, 80),
    ("STEM-90", "Stem 90 mm", "pc", 2_440, 38, "C-08", 120, 25),
    ("BAR-SWEPT", "Swept handlebar", "pc", 3_120, 33, "C-09", 100, 25),
    ("POST-272", "Seat post 27.2 mm", "pc", 1_760, 52, "D-02", 150, 40),
    ("FENDER-45", "Fender set 45 mm", "set", 2_980, 47, "D-03", 120, 30),
    ("RACK-REAR", "Rear rack, steel", "pc", 4_100, 29, "D-04", 90, 25),
    ("LIGHT-F", "Front light, dynamo", "pc", 3_650, 58, "D-05", 160, 40),
    ("LIGHT-R", "Rear light, dynamo", "pc", 2_150, 61, "D-06", 160, 40),
    ("BELL-BRASS", "Brass bell", "pc", 870, 120, "D-07", 300, 60),
    ("LOCK-FRAME", "Frame lock", "pc", 3_300, 44, "D-08", 120, 30),
    ("BIKE-COURIER", "Courier bicycle, complete", "pc", 118_000, 12, "F-01", 40, 8),
    ("BIKE-CITY", "City bicycle, complete", "pc", 94_500, 21, "F-02", 60, 10),
];

type SeedOrderRow =
    (i64, &'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>);

const ORDERS: [SeedOrderRow; 9] = [
    (1034, "purchase", "Taiko Components", "received", Some("2026-10-02"), None),
    (1036, "sales", "Harbour Rentals", "shipped", Some("2026-10-09"), None),
    (1037, "purchase", "Alder & Sons Tubing", "open", Some("2026-11-20"), Some("call before delivery")),
    (1038, "purchase", "Nordlys Rubber AS", "partial", Some("2026-11-06"), Some("second pallet follows")),
    (1039, "sales", "City Courier Co-op", "open", Some("2026-11-27"), Some("fleet renewal, first batch")),
    (1040, "purchase", "Brightspoke GmbH", "open", Some("2026-11-30"), None),
    (1041, "purchase", "Brightspoke GmbH", "draft", None, Some("duplicate of PO-1040?")),
    (1042, "sales", "Veloteca Malasaña", "open", Some("2026-12-04"), None),
    (1043, "sales", "Harbour Rentals", "open", Some("2027-03-15"), Some("spring season")),
];

const LINES: [(i64, &str, i64, i64, i64); 18] = [
    (1034, "CHAIN-8S", 100, 1_090, 100),
    (1034, "BRAKE-HS", 20, 5_400, 20),
    (1036, "BIKE-CITY", 15, 94_500, 15),
    (1037, "TUBE-4130-28", 240, 1_450, 0),
    (1038, "TYRE-700C", 300, 1_640, 200),
    (1038, "RIM-622-36", 60, 2_150, 60),
    (1039, "BIKE-COURIER", 10, 118_000, 0),
    (1039, "CHAIN-8S", 20, 1_600, 0),
    (1040, "SPOKE-262", 3_000, 36, 0),
    (1040, "HUB-DYN-36", 60, 6_100, 0),
    (1040, "TYRE-700C", 80, 1_660, 0),
    (1040, "RIM-622-36", 50, 2_170, 0),
    (1041, "SPOKE-262", 3_000, 36, 0),
    (1041, "HUB-DYN-36", 60, 6_100, 0),
    (1042, "BIKE-CITY", 6, 94_500, 0),
    (1042, "SADDLE-W", 6, 9_900, 0),
    (1043, "BIKE-CITY", 30, 92_000, 0),
    (1043, "BIKE-COURIER", 4, 115_000, 0),
];

const ADJUSTMENTS: [(i64, &str, i64, &str); 3] = [
    (301, "SPOKE-262", -50, "bent in transport"),
    (302, "TYRE-700C", 4, "found behind C-01 at the October count"),
    (303, "SADDLE-W", -1, "showroom sample"),
];

/// Makes tables and data where there are none yet, in one transaction.
pub(crate) fn prepare(connection: &Connection) -> Result<(), OrderDeskError> {
    connection.execute_batch("PRAGMA foreign_keys = ON; BEGIN IMMEDIATE")?;
    let done = fill(connection);
    connection.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    done
}

fn fill(connection: &Connection) -> Result<(), OrderDeskError> {
    let there: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'orders'",
        [],
        |row| row.get(0),
    )?;
    if there > 0 {
        return Ok(());
    }
    connection.execute_batch(TABLES)?;
    for (name, kind, city) in PARTIES {
        connection.execute("INSERT INTO parties VALUES (?1, ?2, ?3)", params![name, kind, city])?;
    }
    for (sku, name, unit, price, stock, bin, capacity, reorder) in ITEMS {
        connection.execute(
            "INSERT INTO items VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![sku, name, unit, price, stock, bin, capacity, reorder],
        )?;
    }
    for (id, kind, party, status, due, note) in ORDERS {
        connection.execute(
            "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![id, kind, party, status, due, note],
        )?;
    }
    for (order, sku, quantity, price, done) in LINES {
        connection.execute(
            "INSERT INTO lines VALUES (?1, ?2, ?3, ?4, ?5)",
            params![order, sku, quantity, price, done],
        )?;
    }
    for (id, sku, quantity, reason) in ADJUSTMENTS {
        connection
            .execute("INSERT INTO adjustments VALUES (?1, ?2, ?3, ?4)", params![id, sku, quantity, reason])?;
    }
    // The cache is a little behind, as caches are.
    connection.execute_batch(
        "INSERT INTO stock_cache SELECT sku, stock FROM items WHERE sku <> 'SADDLE-W';
         UPDATE stock_cache SET stock = stock - 4 WHERE sku = 'TYRE-700C';",
    )?;
    Ok(())
}
