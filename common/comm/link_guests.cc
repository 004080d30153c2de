#include "common/comm/link_guests.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/telemetry/refusals.h"

namespace tandem::comm {

std::string LinkProof(const std::string& secret, const std::string& nonce, int from, int to) {
  return security::Hmac(secret, {"link", nonce, absl::StrCat(from), absl::StrCat(to)});
}

bool LinkGuests::Add(host::FileDescriptor fd, std::string name, absl::Time now) {
  Guest guest{std::move(fd), std::move(name), {}, 0, now + kGreetingTime};
  // A rank's greeting usually arrives with its connection, which then never counts as a guest.
  if (Hear(guest)) return true;
  if (!guest.fd.is_open()) return false;
  if (guests_.size() >= kMaxGuests) RefuseOldest();
  guests_.push_back(std::move(guest));
  return false;
}

bool LinkGuests::Hear(size_t index) { return Hear(guests_[index]); }

bool LinkGuests::Hear(Guest& guest) {
  if (!guest.fd.is_open()) return false;
  const ssize_t n = recv(guest.fd.get(), reinterpret_cast<char*>(&guest.greeting) + guest.heard,
                         sizeof(Greeting) - guest.heard, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n > 0) guest.heard += static_cast<size_t>(n);
  if (n > 0 && guest.heard < sizeof(Greeting)) return false;
  const Greeting& greeting = guest.greeting;
  const absl::string_view proof(greeting.proof.data(), greeting.proof.size());
  if (guest.heard < sizeof(Greeting) ||
      !security::AreEqual(proof, LinkProof(secret_, nonce_, greeting.rank, rank_)) ||
      greeting.rank <= rank_ || greeting.rank >= static_cast<int>(links_.size()) ||
      links_[greeting.rank].is_open()) {
    Refuse(guest);
    return false;
  }
  // The entry stays, closed, until Sweep(): the caller's indices remain valid.
  links_[greeting.rank] = std::move(guest.fd);
  guest.fd = host::FileDescriptor();
  return true;
}

void LinkGuests::Sweep(absl::Time now) {
  for (Guest& guest : guests_) {
    if (guest.fd.is_open() && now > guest.until) Refuse(guest);
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.fd.is_open(); });
}

bool LinkGuests::RefuseOldest() {
  if (guests_.empty()) return false;
  Refuse(guests_.front());
  guests_.pop_front();
  return true;
}

void LinkGuests::Refuse(Guest& guest) {
  ++num_refused_;
  last_refused_ = guest.name;
  telemetry::CountRefusal(telemetry::RefusedAt::kLinks, last_refused_,
                          "it is not a rank of the group, or is connected already");
  guest.fd = host::FileDescriptor();
}

std::string LinkGuests::Refused() const {
  if (num_refused_ == 0) return "";
  return absl::StrCat("; refused ", num_refused_, " unknown connections, the last from ",
                      last_refused_);
}

}  // namespace tandem::comm
