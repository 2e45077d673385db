"""What people read: logs, progress, reports of defects, escaped and masked text; and declared metrics."""
