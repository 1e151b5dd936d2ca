-- wrk's script: posts the body of a file under so many sessions in turn, and prints a line of JSON at the end.
-- `wrk ... -s wrk.lua URL -- BODY_FILE SESSIONS [SECONDS]`: SECONDS is for less than wrk itself can be told, which is 1.

local requests, last = {}, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local body = file:read("*a")
  file:close()
  for session = 1, tonumber(arguments[2]) do
    local headers = { ["content-type"] = "application/json", ["x-session-id"] = tostring(session - 1) }
    requests[session] = wrk.format("POST", nil, headers, body)
  end
  if arguments[3] then os.execute("(sleep " .. arguments[3] .. "; kill -INT $PPID) &") end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

-- Milliseconds, and microseconds of processor time.
function done(summary, latency)
  local errors = 0
  for _, count in pairs(summary.errors) do errors = errors + count end
  io.write(string.format('{"requests":%d,"seconds":%f,"p50":%f,"p99":%f,"errors":%d,"cpu":%d}\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, errors, os.clock() * 1e6))
end
