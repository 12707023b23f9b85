-- Upstreams whose list of tools was read once, empty or not: only the first list is trusted at first sight.
CREATE TABLE listed_upstreams (
    upstream     TEXT PRIMARY KEY,
    first_listed BIGINT NOT NULL
);
INSERT INTO listed_upstreams (upstream, first_listed) SELECT upstream, MIN(first_seen) FROM pins GROUP BY upstream;
