SELECT * FROM orders WHERE offset > 3 AND NOT (partition = 1 OR key IS NULL) ORDER BY 1 LIMIT 3 OFFSET 2
;
SELECT partition, count(*) c FROM orders GROUP BY partition HAVING c > 1
;
SELECT partition, count(*) FROM orders GROUP BY ROLLUP(partition, timestampType)
;
SELECT partition, grouping_id() FROM orders GROUP BY CUBE(partition, timestampType)
;
SELECT partition FROM orders GROUP BY GROUPING SETS ((partition), ())
;
SELECT partition, count(*) FILTER (WHERE offset > 2) FROM orders GROUP BY ALL
;
SELECT a.offset FROM orders a JOIN orders b USING (offset)
;
SELECT a.offset FROM orders a NATURAL JOIN orders b
;
SELECT a.offset FROM orders a FULL OUTER JOIN orders b USING (offset)
;
SELECT a.offset FROM orders a LEFT SEMI JOIN orders b ON a.offset = b.offset
;
SELECT a.offset FROM orders a LEFT ANTI JOIN orders b ON a.offset = b.offset
;
SELECT a.offset FROM orders a CROSS JOIN orders b
;
SELECT a.offset, x FROM orders a, LATERAL (SELECT a.offset + 1 AS x)
;
SELECT a.offset, x FROM orders a LEFT JOIN LATERAL (SELECT max(offset) AS x FROM orders o WHERE o.offset < a.offset) ON true
;
SELECT offset, h.key, h.value FROM orders LATERAL VIEW explode(headers) t AS h
;
SELECT offset, inline(headers) FROM orders
;
SELECT offset, posexplode(headers) FROM orders
;
SELECT offset, h.* FROM orders, LATERAL explode(headers) AS t(h)
;
SELECT * FROM range(3)
;
SELECT * FROM orders TABLESAMPLE (3 ROWS)
;
SELECT * FROM orders TABLESAMPLE (BUCKET 1 OUT OF 3)
;
SELECT * FROM stack(2, 1, 2, 3)
;
SELECT * FROM json_tuple('{"a":1}', 'a')
;
SELECT * FROM (SELECT partition, timestampType FROM orders) PIVOT (count(*) AS n FOR partition IN (0 AS a, 1 AS b))
;
SELECT * FROM (SELECT 1 a, 2 b) UNPIVOT (v FOR k IN (a, b))
;
SELECT sum(offset) OVER (PARTITION BY partition ORDER BY offset ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM orders
;
SELECT sum(offset) OVER (PARTITION BY partition ORDER BY timestamp RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND UNBOUNDED FOLLOWING) FROM orders
;
SELECT lag(offset) OVER w, lead(offset, 2, 0) OVER w, first_value(offset) IGNORE NULLS OVER w, nth_value(offset, 2) OVER w, ntile(3) OVER w, cume_dist() OVER w, percent_rank() OVER w FROM orders WINDOW w AS (PARTITION BY partition ORDER BY offset)
;
SELECT CASE WHEN offset > 1 THEN 'a' WHEN offset > 0 THEN 'b' ELSE 'c' END, CASE offset WHEN 1 THEN 2 END FROM orders
;
SELECT offset FROM orders WHERE (offset, partition) IN (SELECT offset, partition FROM orders)
;
SELECT offset FROM orders WHERE cast(value AS string) LIKE 'a%' OR cast(value AS string) ILIKE ANY ('a%', 'b%') OR cast(value AS string) LIKE ALL ('a', 'b') OR cast(value AS string) RLIKE 'x' OR cast(value AS string) NOT LIKE ALL ('q') OR cast(value AS string) NOT LIKE ANY ('q') OR cast(value AS string) ILIKE ALL ('q') OR cast(value as string) NOT ILIKE ALL ('q')
;
SELECT headers[0].key, headers.key, map('a', 1)['a'], element_at(headers, 1).value FROM orders
;
SELECT date '2026-01-01' + 1, timestamp '2026-01-01 00:00:00' + interval 1 day, timestamp - timestamp '2020-01-01 00:00:00', date '2026-01-01' - date '2025-01-01', interval 1 day * 2, interval '1' month / 2, - interval 1 day, interval 1 year * 3, date '2026-01-01' + interval 1 month, interval 2 day / 3, date '2026-01-01' + interval '1' day, date'2026-01-01' - 3, timestamp - interval '1' month, make_interval(1) * 2, make_interval(1) / 2 FROM orders
;
SELECT extract(HOUR FROM timestamp), date_trunc('DAY', timestamp), window(timestamp, '1 hour').start, timestampadd(HOUR, 1, timestamp), timestampdiff(HOUR, timestamp, timestamp), dateadd(DAY, 1, timestamp), datediff(DAY, timestamp, timestamp) FROM orders
;
SELECT window.start, count(*) FROM orders GROUP BY window(timestamp, '1 hour')
;
SELECT window.start, count(*) FROM orders GROUP BY window(timestamp, '1 hour', '30 minutes')
;
SELECT window.start, count(*) FROM orders GROUP BY window(timestamp, '1 hour', '1 hour', '10 minutes')
;
SELECT session_window.start, count(*) FROM orders GROUP BY session_window(timestamp, '5 minutes')
;
SELECT session_window.start, count(*) FROM orders GROUP BY session_window(timestamp, CASE WHEN partition = 1 THEN '5 minutes' ELSE '1 minute' END), partition
;
SELECT j.a, from_json(cast(value AS string), 'a int, b array<string>') AS j2 FROM (SELECT from_json(cast(value AS string), 'a int') AS j, value FROM orders)
;
SELECT from_json(cast(value AS string), schema_of_json('{"a":1}')).a, to_json(struct(offset, key)), get_json_object(cast(value AS string), '$.a') FROM orders
;
SELECT parse_json(cast(value AS string)):a.b[0]::string, try_variant_get(parse_json('{}'), '$.a', 'int') FROM orders
;
SELECT variant_get(parse_json('{"a":1}'), '$.a', 'int'), v.* FROM variant_explode(parse_json('[1]')) v
;
SELECT offset::string, TRY_CAST(offset AS int), CAST(key AS string) || 'x', offset DIV 2, offset % 3, offset & 1, offset | 1, offset ^ 1, ~offset, -offset, +offset, offset <=> 1, offset != 2, offset <> 2, NOT true, offset BETWEEN 1 AND 2, offset IS DISTINCT FROM 2, key IS NOT NULL, true IS TRUE, offset << 2 FROM orders
;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r
;
WITH a AS (SELECT 1 x), b AS (SELECT * FROM a) SELECT * FROM a UNION SELECT * FROM b EXCEPT SELECT 2 INTERSECT SELECT 1 MINUS SELECT 3
;
SELECT x FROM (SELECT 1 AS x UNION ALL SELECT 2) EXCEPT ALL SELECT 3
;
VALUES (1, 'a'), (2, upper('b'))
;
SELECT * FROM VALUES (1, 'a'), (2, upper('b')) AS t(a, b)
;
TABLE orders
;
FROM orders SELECT offset WHERE offset > 1
;
FROM orders |> SELECT offset, partition |> JOIN orders o USING (offset)
;
FROM orders |> SELECT partition, timestampType |> PIVOT (count(*) AS n FOR partition IN (0, 1))
;
FROM VALUES (1), (2) AS t(a) |> AGGREGATE sum(a)
;
FROM VALUES (1), (2) AS t(a) |> UNION ALL VALUES (3) |> OFFSET 1
;
FROM VALUES (1), (2) AS t(a) |> SELECT a, sum(a) OVER (PARTITION BY a) AS s |> WHERE s > 1
;
SELECT /*+ BROADCAST(a), REPARTITION(3), COALESCE(2), REPARTITION_BY_RANGE(3, offset), REBALANCE(offset), MERGE(b), SHUFFLE_HASH(a) */ a.offset FROM orders a JOIN orders b ON a.offset = b.offset DISTRIBUTE BY a.offset SORT BY a.offset
;
SELECT * FROM orders CLUSTER BY offset
;
SELECT DISTINCT partition FROM orders
;
SELECT * EXCEPT (key, value) FROM orders
;
SELECT orders.* FROM orders
;
SELECT struct(*) FROM orders
;
SELECT named_struct('a', 1).a, (1, 2).col1, array(1)[0], map_filter(map('a', 1), (k, v) -> v > 0), aggregate(array(1, 2), 0, (a, x) -> a + x, a -> a * 2), zip_with(array(1), array(2), (x, y) -> x + y), array_sort(array(2, 1), (l, r) -> l - r), filter(array(1), (x, i) -> i > 0), transform_values(map('a', 1), (k, v) -> v + 1), exists(array(1), x -> x IS NULL), forall(array(1), x -> x > 0), reduce(array(1), 0, (a, b) -> a + b)
;
SELECT 'a' COLLATE UTF8_LCASE = 'A', collate('a', 'UNICODE_CI') = 'A', collation('a')
;
SELECT substring('abc' FROM 2 FOR 1), trim(BOTH 'x' FROM 'xax'), overlay('abc' PLACING 'x' FROM 2 FOR 1), position('a' IN 'ba'), TRIM(LEADING FROM ' a'), TRIM(TRAILING 'x' FROM 'ax')
;
SELECT partition FROM orders o WHERE offset = (SELECT max(offset) FROM orders y WHERE y.partition = o.partition)
;
SELECT offset p, p + 1 AS q, q + 1 FROM orders
;
SELECT partition AS p, count(*) FROM orders GROUP BY 1 ORDER BY p, count(*)
;
SELECT offset FROM orders ORDER BY ALL
;
SELECT offset FROM orders LIMIT ALL
;
SELECT max(offset) FROM orders HAVING max(offset) > 1
;
SELECT named_struct('a', offset) AS s FROM orders ORDER BY s.a DESC NULLS LAST
;
SELECT * FROM (SELECT 1 AS a) t JOIN (SELECT 1 AS b) u ON t.a = u.b AND t.a = (SELECT 1)
;
SELECT if(offset > 1, 1.5, 2), coalesce(NULL, 1), nullif(1, 2), nvl2(1, 2, 3), decode(1, 1, 'a', 'b'), 1.5 + 2, 1 / 2, 1.5 * 2.5, 1.5 - 1, 1.5 % 1, sum(1.5), avg(1.5), 3 div 2 FROM orders GROUP BY offset
;
SELECT a.offset FROM orders a LEFT JOIN orders b ON a.offset = b.offset AND b.partition IN (SELECT partition FROM orders)
;
SELECT x.offset FROM orders x RIGHT JOIN orders y ON x.offset = y.offset
;
SELECT count(*) FROM orders WHERE offset = 1 GROUP BY partition WITH ROLLUP
;
SELECT row_number() OVER (ORDER BY count(*)) FROM orders GROUP BY partition
;
SELECT hll_sketch_estimate(hll_sketch_agg(offset)) FROM orders
;
SELECT * FROM explode(array(1,2)) AS t(a) JOIN LATERAL explode(array(a)) AS u(b)
;
SELECT * FROM inline(array(struct(1, 'a'))), posexplode(array(1))
;
SELECT *, explode_outer(array(1)) FROM orders
;
SELECT uuid(), rand(), randn(1), shuffle(array(1)), uniform(1, 2), monotonically_increasing_id(), spark_partition_id()
;
SELECT try_add(1, 2), try_divide(interval 1 year, 2), try_element_at(array(1), 1), try_subtract(1, 2), try_multiply(1, 2), try_mod(1, 2), try_sum(offset) FROM orders
;
SELECT count_min_sketch(offset, 0.5d, 0.5d, 1), histogram_numeric(offset, 5), bit_and(offset), bool_or(true), regr_count(offset, offset) FROM orders
;
SELECT offset, inline(headers) AS (k, v, r) FROM orders
;
SELECT stack(2, 1, 2, 3, 4) AS (a, b)
;
SELECT offset, inline_outer(headers) AS (k, v, r) FROM orders
;
SELECT offset, k FROM orders LATERAL VIEW OUTER inline(headers) t AS k, v, r
;
SELECT json_tuple(cast(value AS string), 'a', 'b') AS (a, b) FROM orders
;
SELECT extract(YEAR FROM timestamp), extract(QUARTER FROM timestamp), extract(MONTH FROM timestamp), extract(WEEK FROM timestamp), extract(YEAROFWEEK FROM timestamp), extract(DAY FROM timestamp), extract(DOW FROM timestamp), extract(DAYOFWEEK_ISO FROM timestamp), extract(DOY FROM timestamp), extract(MINUTE FROM timestamp), extract(SECOND FROM timestamp), extract(DAY FROM interval 3 day), extract(HOUR FROM interval 3 hour), extract(MINUTE FROM interval 3 minute), extract(SECOND FROM interval 3 second), extract(YEAR FROM interval 3 year), extract(MONTH FROM interval 3 month), extract(YEAR FROM make_interval(1)), extract(MONTH FROM make_interval(1)), extract(DAY FROM make_interval(1)), extract(HOUR FROM make_interval(1)), extract(MINUTE FROM make_interval(1)), extract(SECOND FROM make_interval(1)), date_part('week', timestamp) FROM orders
;
FROM orders |> WHERE offset > 1 |> AGGREGATE count(*) AS n GROUP BY partition |> ORDER BY n |> LIMIT 2 |> EXTEND n + 1 AS m |> SET m = m + 1 |> DROP n |> AS q |> SELECT m |> TABLESAMPLE (2 ROWS) |> UNION ALL VALUES (1)
;
SELECT cast(cast('a' AS char(3)) AS varchar(5)), cast(1 AS decimal(10, 2)), cast(array(1) AS array<string>), cast(1 as timestamp), cast('2026-01-01' AS date) > '2025-01-01', timestamp > '2025', concat(key, value), key = cast('a' AS binary) FROM orders
;
SELECT offset FROM orders WHERE (offset) IN (1, NULL)
;
SELECT offset FROM orders WHERE `offset` IN (1, NULL)
;
SELECT offset FROM orders WHERE orders.offset IN (1, NULL)
;
SELECT (SELECT count(*) FROM orders WHERE partition = o.partition) + 1 FROM orders o
;
SELECT max(x) FROM (SELECT try_cast(get_json_object(cast(value AS string), '$.a') AS double) AS x FROM orders)
;
SELECT approx_percentile(offset, array(0.5, 0.9)) FROM orders
;
SELECT timestamp - INTERVAL '1' HOUR, timestamp + INTERVAL '1-1' YEAR TO MONTH, timestamp - INTERVAL '1' YEAR, date'2026-01-01' - INTERVAL '1' YEAR, date'2026-01-01' + make_interval(1), timestamp - make_interval(1), timestamp_ntz'2026-01-01 00:00:00' - timestamp_ntz'2025-01-01 00:00:00', abs(interval -1 day), interval 1 day > interval 2 hour, interval 1 day + interval 1 hour, sign(interval -1 day), sum(interval 1 day), avg(interval 1 year) FROM orders GROUP BY timestamp
;
SELECT offset FROM orders WHERE exists(headers, h -> h.key = 'a') AND filter(headers, h -> h.value IS NOT NULL)[0].key = 'a'
;
SELECT headers.key[0], array_contains(headers.key, 'a'), map_from_entries(transform(headers, h -> struct(h.key, h.value)))['a'] FROM orders
;
SELECT partition, collect_list(struct(offset, key)) FILTER (WHERE offset > 1) FROM orders GROUP BY partition
;
SELECT first(offset, true), last(offset) IGNORE NULLS, max(struct(offset, value)).value FROM orders
;
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY key ORDER BY offset DESC) r FROM orders) WHERE r = 1
;
SELECT partition, min(timestamp), max(timestamp), sum(length(value)), avg(length(value)), count(DISTINCT key), count_if(value IS NULL) FROM orders GROUP BY partition ORDER BY 1
;
SELECT date_format(timestamp, 'yyyy-MM-dd HH'), to_date(timestamp), from_unixtime(1), unix_timestamp(timestamp), to_utc_timestamp(timestamp, 'Europe/Zurich'), convert_timezone('UTC', 'Europe/Zurich', timestamp_ntz'2026-01-01 00:00:00') FROM orders
;
SELECT TIMESTAMP '2026-01-01 00:00:00', DATE '2026-01-01', X'41', 1L, 1S, 1Y, 1.0BD, 1e3, 'a' 'b', r'\n', NULL, true
;
SELECT count(*) FROM orders a JOIN orders b ON a.offset = b.offset WHERE a.partition = (SELECT min(partition) FROM orders) GROUP BY a.partition HAVING count(*) > (SELECT 0) ORDER BY (SELECT 1) LIMIT 10
;
SELECT a.offset FROM orders a JOIN LATERAL (SELECT * FROM orders b WHERE b.offset = a.offset LIMIT 1) c
;
SELECT * FROM (SELECT offset, partition FROM orders) UNPIVOT EXCLUDE NULLS ((v) FOR k IN ((offset) AS o, (partition) AS p))
;
SELECT * FROM (SELECT partition, timestampType, offset FROM orders) PIVOT (sum(offset) AS s, count(*) AS n FOR (partition, timestampType) IN ((0, 0) AS a, (1, 0) AS b))
;
SELECT *, count(*) OVER () FROM orders TABLESAMPLE (50 PERCENT) REPEATABLE (1) s
;
SELECT hex(sha2(value, 256)), md5(value), crc32(value), base64(key), unhex('41'), encode('a', 'utf-8'), decode(key, 'utf-8'), aes_encrypt('a', '0000111122223333'), xxhash64(key), hash(key) % 5, pmod(hash(key), 5) FROM orders
;
SELECT try_to_number('1', '9'), to_number('1', '9'), to_char(1, '9'), format_number(1.5, 1), format_string('%s', 1), lpad('a', 3), rpad(X'41', 3, X'00'), lpad('a', 3, 'x'), substring(value, 1, 3), left('abc', 1), startswith(value, X'41'), contains('abc', 'b'), split('a,b', ','), split_part('a.b', '.', 1), initcap('a'), translate('a', 'a', 'b'), regexp_extract('a1', '(\\d)', 1), regexp_replace('a', 'a', 'b'), ceil(1.5), floor(1.5, 1), round(1.5), greatest(1, 2), least(1, 2) FROM orders
;
WITH t(a, b) AS (SELECT offset, partition FROM orders) SELECT x.a FROM t x JOIN t y USING (a) UNION DISTINCT (SELECT 1 ORDER BY 1 LIMIT 1)
;
SELECT * FROM orders WHERE timestamp BETWEEN '2026-01-01' AND now() AND timestamp > current_timestamp() - INTERVAL 7 DAYS AND timestamp NOT BETWEEN '2020' AND '2021'
;
SELECT cast(parse_json('{"a": [1]}'):a[0] AS int), parse_json('{}'):['x y'], is_variant_null(parse_json('null')), schema_of_variant(parse_json('1')), to_json(parse_json('1'))
;
SELECT CAST(named_struct('a', 1) AS struct<b: string>), from_csv('1,2', 'a int, b int'), schema_of_csv('1,2'), to_csv(named_struct('a', 1)), from_json('{"a":1}', 'map<string,int>'), from_json('[1]', 'array<int>', map('mode', 'FAILFAST'))
;
SELECT any(offset > 1), every(offset > 1), some(offset > 1), bool_and(true), max_by(key, offset), min_by(key, offset), string_agg(cast(key AS string)), array_agg(offset), percentile(offset, 0.5), variance(offset), mode(offset), mode(offset, true), kurtosis(offset), approx_top_k(offset) FROM orders
;
SELECT count(DISTINCT offset, key), sum(DISTINCT offset), approx_count_distinct(key), collect_list(offset), max_by(value, offset), listagg(cast(key AS string), ',') WITHIN GROUP (ORDER BY key), percentile_cont(0.5) WITHIN GROUP (ORDER BY offset), mode() WITHIN GROUP (ORDER BY offset), any_value(key) IGNORE NULLS, median(offset), corr(offset, partition), try_avg(offset) FROM orders
;
SELECT current_date, current_timestamp, localtimestamp(), now(), current_timezone()
;
SELECT offset FROM orders WHERE (offset IN (1, 2, NULL)) AND offset IN (SELECT offset FROM orders) AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.offset = orders.offset + 100)
