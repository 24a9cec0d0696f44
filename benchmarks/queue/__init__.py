"""Work queues beside RabbitMQ and Redis Streams."""
