// OrderLog: who accessed which bytes of a device last, and whether the next access is ordered after
// that: by the order of one stream, by an event that its stream waited for, or by a host that
// synchronized and then queued. It judges by order alone: an access that happened to come in time is
// reported too, whatever the delays were.
//
// Each stream counts its operations. A Clock holds, for every stream, how many of its operations are
// certainly done (a vector clock). Not thread-safe.
#ifndef TANDEM_TESTS_SIMULATOR_ORDER_LOG_H_
#define TANDEM_TESTS_SIMULATOR_ORDER_LOG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem::testing {

using Clock = std::vector<uint64_t>;  // by stream number

inline uint64_t TimeOf(const Clock& clock, int stream) {
  return static_cast<size_t>(stream) < clock.size() ? clock[stream] : 0;
}
// What is done by either clock is done by `clock`.
void Join(Clock& clock, const Clock& other);

class OrderLog {
 public:
  struct Access {
    int stream = -1;
    uint64_t time = 0;  // the stream's count
    std::shared_ptr<const std::string> what;
  };
  struct Bytes {
    uintptr_t begin = 0;
    uintptr_t end = 0;
  };
  struct Conflict {
    Access earlier;
    bool earlier_writes = false;
    Bytes bytes;
  };

  // Adds an access, whose operation starts once `clock` has been reached. Returns an earlier one that
  // it is not ordered after, if there is any and one of the two writes.
  std::optional<Conflict> Read(const Access& access, const Clock& clock, Bytes bytes);
  std::optional<Conflict> Write(const Access& access, const Clock& clock, Bytes bytes);
  void Clear() { segments_.clear(); }

 private:
  // Bytes with one history. Reads are those since the write, the last of each stream.
  struct Segment {
    uintptr_t end = 0;
    Access write;
    std::vector<Access> reads;
  };

  // Makes `at` a border between segments.
  void Cut(uintptr_t at);

  std::map<uintptr_t, Segment> segments_;  // by their begin
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_ORDER_LOG_H_
