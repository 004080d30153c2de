#include "common/telemetry/refusals.h"

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/telemetry/log.h"

namespace tandem::telemetry {
namespace {

std::atomic<int64_t> num_refusals[2];
std::atomic<int64_t> next_line_ms{0};

}  // namespace

void CountRefusal(RefusedAt place, absl::string_view peer, absl::string_view why) {
  const int64_t total = ++num_refusals[static_cast<int>(place)];
  const int64_t now = absl::ToUnixMillis(absl::Now());
  int64_t next = next_line_ms.load();
  if (now < next || !next_line_ms.compare_exchange_strong(next, now + 1000)) return;
  LogWarning("unauthenticated connection refused",
             {{"at", place == RefusedAt::kRendezvous ? "rendezvous" : "links"},
              {"peer", peer},
              {"why", why},
              {"so_far", total}});
}

int64_t NumRefusals(RefusedAt place) { return num_refusals[static_cast<int>(place)].load(); }

}  // namespace tandem::telemetry
