// The links of a run's weight updates, from updates.jsonl: the bytes and the rate of each.
#ifndef TANDEM_TOOLS_TANDEM_DIAGNOSE_LINKS_H_
#define TANDEM_TOOLS_TANDEM_DIAGNOSE_LINKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::diagnose {

// One update over one link.
struct LinkSample {
  int64_t step = 0;
  int64_t policy_version = 0;
  double bytes = 0;
  double seconds = 0;  // while the receiver had room and bytes were missing

  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

struct Link {
  std::string from;  // "trainer/1", "rollout-0/0"
  std::string to;
  std::string transport;
  std::vector<LinkSample> samples;  // by update

  double bytes() const;    // of all updates
  double seconds() const;  // likewise
  // Rate of the median update: the first one makes connections, and others may be disturbed.
  double bytes_per_second() const;
};

// Returns the links by sender, then by receiver; a link that changed its transport appears once per
// transport. Empty if the file is missing.
absl::StatusOr<std::vector<Link>> ReadLinks(const std::string& path);

// Reads the rate between hosts from a file of `tandem doctor --json` lines: bytes per second of the
// largest all-reduce. NOT_FOUND if no line has one.
absl::StatusOr<double> ReadProbe(const std::string& path);

struct SlowLink {
  const Link* link = nullptr;
  double siblings = 0;  // bytes per second of the median link of its kind
};

// Returns links with less than half the rate of others of their kind (the same transport, from the
// trainer or from replica to replica); counts only updates large enough to time.
std::vector<SlowLink> FindSlowLinks(const std::vector<Link>& links);

// Returns the rate of the fastest link between hosts, if all such links carry enough to be timed.
std::optional<double> FastestBetweenHosts(const std::vector<Link>& links);

}  // namespace tandem::diagnose

#endif  // TANDEM_TOOLS_TANDEM_DIAGNOSE_LINKS_H_
