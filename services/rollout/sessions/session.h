// Session: the calls that one agent program makes on the OpenAI endpoint, as they are recorded.
//
//   SetSampling(session->request().sampling(), generation);
//   ASSIGN_OR_RETURN(Session::Call call, session->Begin(num_prompt_tokens, generation));
//   call.Record(index, recorded, turn, digests);
#ifndef TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_H_
#define TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/sessions/past_turns.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// What a session may record: its answer to CloseSession is one message.
inline constexpr int64_t kMaxSessionBytes = int64_t{12} << 20;
inline constexpr int64_t kMaxSessionCalls = 8192;

// The file of an image, shared with the requests that show it.
using SessionImage = std::shared_ptr<const std::string>;

// Gives a request for tokens a session's parameters in place of its own.
void SetSampling(const v1::SamplingParams& sampling, GenerationRequest& generation);

// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // `all_bytes` counts what all sessions hold, of which there may be `max_all_bytes`.
  // `routed_bytes_per_token`: of a token's experts, if the session records them.
  Session(v1::OpenSessionRequest request, absl::Time expires,
          std::shared_ptr<std::atomic<int64_t>> all_bytes, int64_t max_all_bytes,
          int64_t routed_bytes_per_token = 0);
  ~Session();

  const v1::OpenSessionRequest& request() const { return request_; }
  bool expired(absl::Time now) const { return now >= expires_; }

  // UNAUTHENTICATED once the session has ended: its calls must end too.
  absl::Status CheckOpen() const;

  // One prompt of a request, while it is sampled. Movable.
  class Call {
   public:
    Call(std::shared_ptr<Session> session, int64_t number, int64_t reserved, int64_t reserved_bytes)
        : session_(std::move(session)),
          number_(number),
          reserved_(reserved),
          reserved_bytes_(reserved_bytes) {}
    ~Call();
    Call(Call&& other) noexcept = default;
    Call& operator=(Call&&) = delete;

    // Keeps a finished sample, and its turn if a later prompt may repeat it. `digests` are those of
    // a chat's messages and the answer; empty outside of chats. `images`: the files that the sample
    // names by its image_digests, in the same order.
    void Record(int32_t sample, v1::RecordedCall recorded, std::optional<PastTurn> turn,
                const std::vector<std::string>& digests,
                const std::vector<SessionImage>& images = {});

   private:
    std::shared_ptr<Session> session_;  // null once moved from
    int64_t number_;
    int64_t reserved_;        // tokens
    int64_t reserved_bytes_;  // of experts
  };

  // Begins to sample a prompt of `num_prompt_tokens` with these images: sets the request's limits of
  // tokens, and its seed unless it has one. INVALID_ARGUMENT if the prompt is too long
  // (CONTEXT_TOO_LONG) or the session's tokens or room are used up (SESSION_LIMIT); RESOURCE_EXHAUSTED
  // if running calls may still give some back; CheckOpen().
  absl::StatusOr<Call> Begin(int64_t num_prompt_tokens, GenerationRequest& generation,
                             const std::vector<SessionImage>& images = {});

  // See PastTurns.
  std::shared_ptr<const PastTurn> FindChat(const std::vector<std::string>& digests) const;
  std::shared_ptr<const PastTurn> FindText(absl::string_view text) const;

  // Ends the session and returns what it recorded. Later calls of it fail.
  v1::CloseSessionResponse Close();

 private:
  using Place = std::pair<int64_t, int32_t>;  // number of the call, and sample

  // `image_bytes`: of images that the session does not have yet; `routed_bytes`: of the experts that the
  // call may record.
  absl::Status CheckRoom(int64_t num_prompt_tokens, int64_t image_bytes, int32_t n,
                         int64_t routed_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Bytes of the experts that a call which samples up to `max_tokens` may record.
  int64_t RoutedBytes(const GenerationRequest& generation,
                      const std::vector<std::string>& image_digests, int64_t max_tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps what it does not have; returns the bytes that it takes.
  int64_t KeepImages(const v1::RecordedCall& recorded, const std::vector<SessionImage>& images)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Leaves out the experts that an earlier call has recorded.
  void ShareExperts(const Place& place, v1::RecordedCall& recorded)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::OpenSessionRequest request_;
  const absl::Time expires_;
  const std::shared_ptr<std::atomic<int64_t>> all_bytes_;
  const int64_t max_all_bytes_;
  const int64_t routed_bytes_per_token_;
  mutable absl::Mutex mu_;
  bool is_closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_calls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_sampled_ ABSL_GUARDED_BY(mu_) = 0;     // tokens
  int64_t num_reserved_ ABSL_GUARDED_BY(mu_) = 0;    // that running calls may sample
  int64_t record_bytes_ ABSL_GUARDED_BY(mu_) = 0;    // of recorded_ and images_
  int64_t reserved_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of experts that running calls may record
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;           // counted in all_bytes_
  std::map<Place, v1::RecordedCall> recorded_ ABSL_GUARDED_BY(mu_);
  std::map<Place, Place> shared_with_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, SessionImage> images_ ABSL_GUARDED_BY(mu_);  // of recorded_, by digest
  PastTurns turns_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_H_
