// Package registry keeps versions of models, and what shall be served of them, in
// NATS.
//
// # Versions
//
// A version is a model's directory. Its files are cut into parts of at most
// [PartBytes], which lie in an object store under the SHA-256 of their bytes, so
// that equal parts of files, versions and models are stored once. A [Manifest] in
// a key-value bucket names the files and their parts. It is written last and only
// once: what readers can see is whole.
//
//	directory ── Push ──> parts in the object store ── then ──> manifest
//	directory <── Fetch ── parts, each compared with its name <── manifest
//
// Push goes on where an earlier one ended: parts that are stored whole are not
// sent again. Pushes, deletions and sweeps exclude each other by a record that its
// holder renews, and that others take over when it has not changed for a while.
//
// # Deployments
//
// A Deployment says what is served of a model. Workers read it, report what they
// have, and move it on with compare-and-swap: there is no leader.
//
// A bucket may have more keys than an answer of the server, so they are read in the
// order of their sequences, in answers of a bounded size. A [Registry] keeps what it
// has read of deployments and asks for what is new, beginning with the newest record
// it knows: when that is no longer there it reads all again.
//
// A version is deleted in three steps: the deployment says so, the version goes, the
// deployment no longer says so. Who deploys reads the deployment, then the version,
// and replaces the deployment that it has read:
//
//	           deletes                 deploys
//	read deployment, versions      read deployment
//	replace: deleting v    ──┐     read version v
//	remove v                 └──>  replace: next v    refused, it is another by now
//	replace: not deleting          read again         no v, or v is being deleted
//
// # Names
//
// All names have an underscore and the subject prefix behind when it is not the
// usual one, in which "_" is written "__", and "." is written "_-".
//
//	object store CELLMQ_MODELS   parts
//	bucket CELLMQ_MODELS         version.<model>.<version, base64url>, deploy.<model>, lock
//	bucket CELLMQ_WORKERS        <worker>, gone when it is not renewed
//
// Everything read is checked against bounds before anything is made of it: other
// clients of the server may have written it.
package registry
