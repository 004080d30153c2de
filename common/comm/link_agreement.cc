#include "common/comm/link_agreement.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/local_address.h"
#include "common/comm/local_links.h"
#include "common/comm/socket_links.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using security::DataPlaneEncryption;

std::string PlaceKey(int rank) { return absl::StrCat("place/", rank); }

const std::string& SecretOf(const GroupOptions& options) { return options.rendezvous.secret; }

// Lines; the last one is the proof.
std::string Encode(const LinkEntry& entry) {
  return absl::StrJoin({std::string(DataPlaneEncryptionName(entry.data_plane.encryption)),
                        std::string(entry.data_plane.allow_plaintext_nccl ? "1" : "0"),
                        entry.data_plane.source, entry.host, entry.place},
                       "\n");
}

absl::StatusOr<LinkEntry> Decode(absl::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  LinkEntry entry;
  bool known = false;
  for (const auto encryption : {DataPlaneEncryption::kNever, DataPlaneEncryption::kBetweenHosts,
                                DataPlaneEncryption::kAlways}) {
    if (lines[0] != DataPlaneEncryptionName(encryption)) continue;
    entry.data_plane.encryption = encryption;
    known = true;
  }
  if (!known || lines.size() != 5) {
    return absl::FailedPreconditionError(
        "it does not state the encryption of its links; run the same release on all ranks");
  }
  entry.data_plane.allow_plaintext_nccl = lines[1] == "1";
  entry.data_plane.source = lines[2];
  entry.host = lines[3];
  entry.place = lines[4];
  return entry;
}

std::string ProofOf(const GroupOptions& options, int rank, absl::string_view entry) {
  const std::string& secret = SecretOf(options);
  if (secret.empty()) return "";
  return absl::BytesToHexString(
      security::Hmac(secret, {"place", options.rendezvous.prefix, absl::StrCat(rank), entry}));
}

absl::StatusOr<LinkEntry> ReadEntry(const GroupOptions& options, int rank, StoreConnection& store,
                                    absl::Time deadline, const Cancelled& cancelled) {
  RETURN_IF_ERROR(store.WaitFor(PlaceKey(rank), deadline, cancelled));
  ASSIGN_OR_RETURN(const std::string found, store.Read(PlaceKey(rank), deadline, cancelled));
  const size_t end = found.rfind('\n');
  const absl::string_view entry = absl::string_view(found).substr(0, end);
  const absl::string_view proof =
      end == std::string::npos ? "" : absl::string_view(found).substr(end + 1);
  if (!security::AreEqual(proof, ProofOf(options, rank, entry))) {
    return absl::PermissionDeniedError(absl::StrCat("the store's entry of rank ", rank,
                                                    " is not signed with the group's secret; start "
                                                    "all ranks with the same TANDEM_GROUP_SECRET"));
  }
  absl::StatusOr<LinkEntry> decoded = Decode(entry);
  RETURN_IF_ERROR(decoded.status()) << absl::StrCat("rank ", rank);
  return decoded;
}

std::string SettingOf(const LinkEntry& entry) {
  return absl::StrCat("'", DataPlaneEncryptionName(entry.data_plane.encryption), "' (",
                      entry.data_plane.source, ")");
}

absl::Status NoSecretError(const std::string& group, const LinkEntry& own) {
  return absl::FailedPreconditionError(absl::StrCat(
      "group ", group, ": links between hosts must be encrypted (", own.data_plane.source,
      "), but there is no secret for it: give all ranks the same TANDEM_GROUP_SECRET, or set "
      "--data-plane-encryption never on a private network"));
}

absl::Status CheckNccl(const std::string& group, const std::vector<LinkEntry>& entries) {
  if (entries[0].data_plane.encryption == DataPlaneEncryption::kNever) return absl::OkStatus();
  for (size_t rank = 1; rank < entries.size(); ++rank) {
    if (entries[rank].host == entries[0].host) continue;
    for (size_t refuses = 0; refuses < entries.size(); ++refuses) {
      if (entries[refuses].data_plane.allow_plaintext_nccl) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "group ", group, ": ranks 0 and ", rank,
          " are on different hosts, whose links must be encrypted, but NCCL sends plaintext; rank ",
          refuses,
          " does not allow that: on a private network, give every rank --allow-plaintext-nccl "
          "(TANDEM_ALLOW_PLAINTEXT_NCCL=1)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LinkPlan> PlanLinks(const std::string& group, int rank, bool has_secret,
                                   const std::vector<LinkEntry>& entries) {
  LinkPlan plan;
  plan.within_place = true;
  plan.within_host = true;
  plan.encrypted.resize(entries.size(), false);
  // All ranks compare with rank 0, so that all reach the same verdict.
  const DataPlaneEncryption encryption = entries[0].data_plane.encryption;
  for (size_t peer = 1; peer < entries.size(); ++peer) {
    if (entries[peer].data_plane.encryption != encryption) {
      return absl::FailedPreconditionError(
          absl::StrCat("group ", group, ": the data plane's encryption is ", SettingOf(entries[0]),
                       " on rank 0 and ", SettingOf(entries[peer]), " on rank ", peer,
                       "; give all ranks the same --data-plane-encryption and TLS flags"));
    }
    plan.within_place = plan.within_place && entries[peer].place == entries[0].place;
    plan.within_host = plan.within_host && entries[peer].host == entries[0].host;
  }
  plan.nccl = CheckNccl(group, entries);
  if (encryption == DataPlaneEncryption::kNever) return plan;
  const bool always = encryption == DataPlaneEncryption::kAlways;
  plan.is_encrypted = entries.size() > 1 && (always || !plan.within_host);
  for (size_t peer = 0; peer < entries.size(); ++peer) {
    plan.encrypted[peer] =
        static_cast<int>(peer) != rank && (always || entries[peer].host != entries[rank].host);
  }
  if (plan.is_encrypted && !has_secret) return NoSecretError(group, entries[rank]);
  return plan;
}

absl::StatusOr<LinkPlan> AgreeOnLinks(const GroupOptions& options, std::string place) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  LinkEntry own;
  own.data_plane = options.data_plane;
  own.host = options.place.empty() ? LocalLinks::Place() : options.place;
  // A rank that does not know its host, or cannot share, gets a value that no other rank has.
  const std::string alone = absl::StrCat("rank ", options.rank);
  if (own.host.empty()) own.host = alone;
  own.place = place.empty() ? alone : std::move(place);
  const auto agree = [&]() -> absl::StatusOr<LinkPlan> {
    ASSIGN_OR_RETURN(auto store, StoreConnection::Open(options.rendezvous, deadline, cancelled));
    const std::string entry = Encode(own);
    RETURN_IF_ERROR(store->Set(PlaceKey(options.rank),
                               absl::StrCat(entry, "\n", ProofOf(options, options.rank, entry)),
                               deadline));
    std::vector<LinkEntry> entries(options.size);
    for (int peer = 0; peer < options.size; ++peer) {
      ASSIGN_OR_RETURN(entries[peer], ReadEntry(options, peer, *store, deadline, cancelled));
    }
    const bool has_secret = !SecretOf(options).empty();
    ASSIGN_OR_RETURN(LinkPlan plan, PlanLinks(options.name, options.rank, has_secret, entries));
    // Without a secret nothing proves that the ranks are on one host, unless the store is on this
    // host: then no man in the middle can have forged the entries.
    if (!has_secret && options.data_plane.encryption != DataPlaneEncryption::kNever &&
        !IsThisHost(options.rendezvous.host)) {
      return NoSecretError(options.name, own);
    }
    return plan;
  };
  absl::StatusOr<LinkPlan> plan = agree();
  if (!plan.ok()) return RendezvousError(options, plan.status());
  return plan;
}

absl::Status EncryptLinks(const GroupOptions& options, const LinkPlan& plan, absl::string_view lane,
                          std::vector<SocketLink>& links, absl::Time deadline,
                          const Cancelled& cancelled) {
  if (!plan.is_encrypted) return absl::OkStatus();
  // Every rank goes through its peers in rank order, so both ranks of the first unfinished pair are
  // working on it: no deadlock.
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank || !plan.encrypted[peer]) continue;
    const int low = std::min(peer, options.rank);
    const int high = std::max(peer, options.rank);
    TlsSession::Options tls;
    tls.is_server = options.rank == low;
    tls.key = security::Hmac(SecretOf(options), {"tls", options.rendezvous.prefix, lane,
                                                 absl::StrCat(low), absl::StrCat(high)});
    tls.what = absl::StrCat("TLS with rank ", peer);
    ASSIGN_OR_RETURN(auto session, TlsSession::Handshake(links[peer].socket(), std::move(tls),
                                                         deadline, cancelled));
    links[peer].Encrypt(std::move(session));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SocketLink>> ConnectLinks(const GroupOptions& options,
                                                     const LinkPlan& plan, absl::string_view lane,
                                                     absl::Time deadline,
                                                     const Cancelled& cancelled) {
  Rendezvous rendezvous = options.rendezvous;
  if (!lane.empty()) absl::StrAppend(&rendezvous.prefix, "/", lane);
  ASSIGN_OR_RETURN(auto store, StoreConnection::Open(rendezvous, deadline, cancelled));
  std::string host = options.advertise_host;
  if (host.empty()) {
    ASSIGN_OR_RETURN(host, LocalAddressTowards(options.rendezvous.host));
  }
  ASSIGN_OR_RETURN(std::vector<host::FileDescriptor> sockets,
                   ConnectSockets(host, options.rank, options.size, *store, deadline, cancelled));
  std::vector<SocketLink> links;
  for (host::FileDescriptor& socket : sockets) links.emplace_back(std::move(socket));
  RETURN_IF_ERROR(EncryptLinks(options, plan, lane, links, deadline, cancelled));
  return links;
}

}  // namespace tandem::comm
