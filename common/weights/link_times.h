// LinkTimes: bytes received over each link in one update, and the time they took.
//
//   LinkTimes links(group.size());
//   links.Arrived(source, bytes, posted, arrived);      // messages of a source in their order
//   for (common::v1::LinkReport& report : links.Reports("socket")) Use(report);
#ifndef TANDEM_COMMON_WEIGHTS_LINK_TIMES_H_
#define TANDEM_COMMON_WEIGHTS_LINK_TIMES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/common/v1/links.pb.h"

namespace tandem::weights {

// One thread at a time.
class LinkTimes {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LinkTimes(int num_sources) : links_(num_sources) {}

  // Records a message whose receive was posted at `posted` and completed at `arrived`. Overlapping
  // messages of a link count their time once.
  void Arrived(int source, int64_t bytes, Clock::time_point posted, Clock::time_point arrived) {
    Link& link = links_[source];
    const Clock::time_point begin = std::max(posted, link.last);
    link.bytes += bytes;
    link.seconds += std::max(0.0, std::chrono::duration<double>(arrived - begin).count());
    link.last = std::max(link.last, arrived);
  }

  // Reports for all sources that sent anything, in order.
  std::vector<common::v1::LinkReport> Reports(const std::string& transport) const {
    std::vector<common::v1::LinkReport> out;
    for (size_t source = 0; source < links_.size(); ++source) {
      if (links_[source].bytes == 0) continue;
      common::v1::LinkReport& report = out.emplace_back();
      report.set_from(static_cast<int>(source));
      report.set_size_bytes(links_[source].bytes);
      report.set_seconds(links_[source].seconds);
      report.set_transport(transport);
    }
    return out;
  }

 private:
  struct Link {
    int64_t bytes = 0;
    double seconds = 0;
    Clock::time_point last;
  };
  std::vector<Link> links_;  // by source
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_LINK_TIMES_H_
