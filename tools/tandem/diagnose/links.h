// The links of a run's weight updates: what each carried, and how fast, from updates.jsonl.
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
  double seconds = 0;  // in which the receiver had room and they had not all arrived

  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

struct Link {
  std::string from;  // "trainer/1", "rollout-0/0"
  std::string to;
  std::string transport;
  std::vector<LinkSample> samples;  // by update

  double bytes() const;    // of all updates
  double seconds() const;  // likewise
  // Of the median update: the first one makes connections, and any may be disturbed.
  double bytes_per_second() const;
};

// By sender, then by receiver; a link that changed its transport stands once for each. Empty where
// the file is not there.
absl::StatusOr<std::vector<Link>> ReadLinks(const std::string& path);

// What `tandem doctor --json` measured between the hosts, from a file of its lines: bytes per
// second of the largest all-reduce. NOT_FOUND where none of the lines has one.
absl::StatusOr<double> ReadProbe(const std::string& path);

struct SlowLink {
  const Link* link = nullptr;
  double siblings = 0;  // bytes per second of the median of those like it
};

// Links that reach less than half of what others of their kind do (the same transport, from the
// trainer or from replica to replica), by updates that are large enough to tell.
std::vector<SlowLink> FindSlowLinks(const std::vector<Link>& links);

// The rate of the fastest link between hosts, where all are so large that it tells.
std::optional<double> FastestBetweenHosts(const std::vector<Link>& links);

}  // namespace tandem::diagnose

#endif  // TANDEM_TOOLS_TANDEM_DIAGNOSE_LINKS_H_
