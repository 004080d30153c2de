// What strangers and ranks send first to a rank's listener while a group forms: nobody is let in
// who has not sent a rank's greeting, in full and in time, and the rest are bounded.
//
// An input is steps: a byte for what is done, one for the connection, a length of a byte, and the
// bytes that come over it.
#include "common/comm/link_guests.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

using tandem::comm::Greeting;
using tandem::comm::LinkGuests;
using tandem::host::FileDescriptor;

enum class Step : uint8_t { kSay, kConnect, kConnectAndGreet, kClose, kWait, kRefuseOldest };
constexpr int kNumSteps = 6;
constexpr int kRank = 1;
constexpr int kSize = 4;

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string GreetingOf(int rank, const std::string& secret, const std::string& nonce) {
  Greeting greeting;
  greeting.rank = rank;
  const std::string proof = tandem::comm::LinkProof(secret, nonce, rank, kRank);
  std::copy(proof.begin(), proof.end(), greeting.proof.begin());
  return std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
}

class Run {
 public:
  void Do(Step step, uint8_t which, const std::string& bytes) {
    if (step == Step::kConnect || step == Step::kConnectAndGreet) {
      Connect(step == Step::kConnectAndGreet ? GreetingOf(which % 6 - 1, secret_, nonce_) + bytes
                                             : bytes);
    } else if (step == Step::kWait) {
      now_ += absl::Milliseconds(100 * which);
    } else if (step == Step::kRefuseOldest) {
      guests_.RefuseOldest();
    } else if (!ends_.empty()) {
      End& end = ends_[which % ends_.size()];
      if (step == Step::kClose) end.fd = FileDescriptor();
      if (step == Step::kSay) Say(end, bytes);
    }
    for (size_t i = 0; i < guests_.size(); ++i) guests_.Hear(i);
    guests_.Sweep(now_);
    Check();
  }

 private:
  struct End {
    FileDescriptor fd;
    std::string said;
  };

  void Connect(const std::string& bytes) {
    int fds[2];
    if (ends_.size() >= 2 * tandem::comm::kMaxGuests ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
      return;
    }
    End& end = ends_.emplace_back();
    end.fd = FileDescriptor(fds[1]);
    Say(end, bytes);
    guests_.Add(FileDescriptor(fds[0]), "10.0.0.7:1", now_);
  }

  static void Say(End& end, const std::string& bytes) {
    if (end.fd.is_open() && send(end.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      end.said += bytes;
    }
  }

  void Check() const {
    Require(guests_.size() <= tandem::comm::kMaxGuests);
    for (int rank = 0; rank < kSize; ++rank) {
      if (!links_[rank].is_open()) continue;
      Require(rank > kRank);
      const std::string greeting = GreetingOf(rank, secret_, nonce_);
      Require(std::any_of(ends_.begin(), ends_.end(), [&](const End& end) {
        return end.said.compare(0, greeting.size(), greeting) == 0;
      }));
    }
  }

  const std::string secret_ = "a secret of the members";
  const std::string nonce_ = std::string(tandem::security::kSecretBytes, 'n');
  std::vector<FileDescriptor> links_ = std::vector<FileDescriptor>(kSize);
  LinkGuests guests_{kRank, secret_, nonce_, links_};
  std::vector<End> ends_;
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run run;
  for (size_t at = 0; at + 3 <= size;) {
    const size_t taken = std::min<size_t>(data[at + 2], size - at - 3);
    run.Do(static_cast<Step>(data[at] % kNumSteps), data[at + 1],
           std::string(reinterpret_cast<const char*>(data + at + 3), taken));
    at += 3 + taken;
  }
  return 0;
}
